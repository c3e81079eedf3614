//! Packs the npm packages: one for each platform with the program, and one that runs it. Must not run npm.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::archive::{self, Effort, Entry};
use super::platform::{PLATFORMS, Platform};
use super::{Contents, File, REPOSITORY, VERSION, sources};
use crate::step::{self, root};

/// The directory of the templates.
const DIRECTORY: &str = "cli/packages/npm";

/// The package that users install. It names the packages of all platforms, and npm installs the one that fits.
pub(super) fn pack_main() -> Result<File> {
    let directory = root().join(DIRECTORY).join("everlink");
    let mut manifest = manifest("everlink")?;
    let platforms = PLATFORMS.iter().map(|platform| {
        let version = Value::from(VERSION);
        (package_name(platform), version)
    });
    manifest["optionalDependencies"] = platforms.collect::<Map<String, Value>>().into();
    let mut entries = vec![Entry::new("package.json", format!("{manifest:#}\n"))];
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        entries.push(Entry::new(name, step::read(name)?));
    }
    // All files of the template except its manifest. Those in `bin` are executable.
    let files = sources(&directory)?.into_iter();
    let files = files.filter(|(path, _)| path != "package.json");
    entries.extend(files.map(|(path, bytes)| Entry {
        executable: path.starts_with("bin/"),
        ..Entry::new(path, bytes)
    }));
    Ok(File {
        name: format!("everlink-{VERSION}.tgz"),
        bytes: archive::tar_gz("package", &entries, Effort::Most)?,
    })
}

/// The package with the program of one platform.
pub(super) fn pack_platform(contents: &Contents) -> Result<File> {
    let platform = contents.platform;
    let with_name = |text: &str| text.replace("{platform}", &platform.name());
    let mut manifest = manifest("platform")?;
    manifest["name"] = package_name(&platform).into();
    manifest["description"] =
        with_name(manifest["description"].as_str().unwrap_or_default()).into();
    manifest["os"] = json!([platform.os]);
    manifest["cpu"] = json!([platform.cpu]);
    let readme = step::read(format!("{DIRECTORY}/platform/README.md"))?;
    let mut entries = vec![
        Entry::new("package.json", format!("{manifest:#}\n")),
        Entry::new("README.md", with_name(&readme)),
        Entry::new("everlink.cyclonedx.json", contents.sbom.as_bytes()),
        Entry::executable(
            format!("bin/{}", platform.program()),
            contents.program.clone(),
        ),
    ];
    entries.extend(contents.licences.iter().cloned());
    Ok(File {
        name: format!("everlink-cli-{}-{VERSION}.tgz", platform.name()),
        bytes: archive::tar_gz("package", &entries, contents.effort)?,
    })
}

fn package_name(platform: &Platform) -> String {
    format!("@everlink/cli-{}", platform.name())
}

/// The manifest of a template, with the version and the address of the repository.
fn manifest(template: &str) -> Result<Value> {
    let path = format!("{DIRECTORY}/{template}/package.json");
    let manifest = serde_json::from_str(&step::read(&path)?);
    let mut manifest: Value = manifest.with_context(|| path)?;
    manifest["version"] = VERSION.into();
    manifest["homepage"] = REPOSITORY.into();
    manifest["repository"] = json!({"type": "git", "url": format!("git+{REPOSITORY}.git")});
    Ok(manifest)
}
