//! Writes the list of packages in the program as a CycloneDX document. Must not read anything.

use serde_json::{Value, json};

use super::dependencies::Linked;

/// The document for the program with these packages. It has no time and no serial number, so that equal packages give equal bytes.
pub(super) fn document(version: &str, packages: &[Linked]) -> String {
    let program = packages.iter().find(|package| package.is_program());
    let others = packages.iter().filter(|package| !package.is_program());
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": program.map(reference),
                "name": "everlink",
                "version": version,
                "licenses": program.map(licences),
                "purl": program.map(reference),
            },
        },
        "components": others.map(component).collect::<Vec<Value>>(),
        "dependencies": packages.iter().map(|package| edges(package, packages)).collect::<Vec<Value>>(),
    });
    format!("{document:#}\n")
}

fn component(package: &Linked) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
        "licenses": licences(package),
        "purl": reference(package),
    });
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

fn licences(package: &Linked) -> Value {
    json!([{"expression": package.licence}])
}

fn edges(package: &Linked, packages: &[Linked]) -> Value {
    let targets = package.dependencies.iter();
    let targets: Vec<String> = targets
        .filter_map(|&place| packages.get(place).map(reference))
        .collect();
    json!({"ref": reference(package), "dependsOn": targets})
}

/// The package URL, which also is the id of the package in the document.
fn reference(package: &Linked) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::Value;

    use super::{Linked, document};

    fn package(name: &str, checksum: Option<&str>, dependencies: Vec<usize>) -> Linked {
        Linked {
            name: name.into(),
            version: "1.0.0".into(),
            licence: "MIT".into(),
            repository: None,
            checksum: checksum.map(str::to_owned),
            directory: PathBuf::new(),
            dependencies,
        }
    }

    #[test]
    fn document_names_the_program_its_packages_and_their_edges() {
        let packages = [
            package("everlink-cli", None, vec![1]),
            package("memchr", Some("77"), vec![]),
        ];
        let document: Value = serde_json::from_str(&document("1.0.0", &packages)).expect("JSON");
        let pointed = |path| document.pointer(path).and_then(Value::as_str);
        assert_eq!(
            pointed("/metadata/component/purl"),
            Some("pkg:cargo/everlink-cli@1.0.0")
        );
        assert_eq!(pointed("/components/0/hashes/0/content"), Some("77"));
        assert_eq!(
            pointed("/dependencies/0/dependsOn/0"),
            Some("pkg:cargo/memchr@1.0.0")
        );
    }
}
