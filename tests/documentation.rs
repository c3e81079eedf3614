//! Every setting states its default in its documentation. The test reads source text and does not know whether the value is right.

use std::fs;
use std::path::{Path, PathBuf};

/// The texts that state where the value of a setting comes from.
const STATEMENTS: &[&str] = &["Default:", "The constructor sets it", "have the defaults"];

/// Structs that have neither a constructor nor a default, so that their user writes all fields.
const WITHOUT_DEFAULTS: &[&str] = &["Endpoints", "IdentityProvider", "KnownClient"];

#[test]
fn every_setting_states_its_default() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "adapters"] {
        collect(&root.join(dir), &mut files);
    }
    let mut silent = Vec::new();
    let mut count = 0;
    for file in files {
        let source = fs::read_to_string(&file).expect("a source file is readable");
        for (field, documentation) in settings(&source) {
            count += 1;
            if !STATEMENTS.iter().any(|text| documentation.contains(text)) {
                silent.push(format!("{}: {field}", file.display()));
            }
        }
    }
    assert!(count > 120, "the scan finds only {count} settings");
    assert!(
        silent.is_empty(),
        "without a default:\n{}",
        silent.join("\n")
    );
}

#[test]
fn only_public_fields_of_public_structs_with_defaults_are_settings() {
    let source = "
/// Settings.
pub struct Config {
    /// How long. Default:
    /// 1 s.
    #[cfg(unix)]
    pub time: u8,
    /// Internal.
    pub(crate) inner: u8,
}
pub struct KnownClient {
    /// The id.
    pub id: u8,
}
struct Private {
    /// Internal.
    pub number: u8,
}
";
    let expected = [("time".to_owned(), "How long. Default: 1 s.".to_owned())];
    assert_eq!(settings(source), expected);
}

/// The public fields of the public structs in `source`, each with its documentation on one line.
fn settings(source: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let (mut in_struct, mut documentation) = (false, Vec::new());
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("pub struct ") {
            let name = name.trim_end_matches(" {");
            in_struct = !WITHOUT_DEFAULTS.contains(&name);
            documentation.clear();
        } else if line.starts_with('}') {
            in_struct = false;
        }
        let line = line.trim();
        if let Some(text) = line.strip_prefix("/// ") {
            documentation.push(text);
        } else if let Some((name, _)) = line
            .strip_prefix("pub ")
            .and_then(|rest| rest.split_once(':'))
        {
            if in_struct {
                settings.push((name.to_owned(), documentation.join(" ")));
            }
            documentation.clear();
        } else if !line.starts_with("#[") && line != "///" {
            documentation.clear();
        }
    }
    settings
}

/// The files that hold settings and nothing else.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory is readable") {
        let path = entry.expect("an entry is readable").path();
        if path.is_dir() {
            collect(&path, files);
            continue;
        }
        let holds_settings = [
            "config.rs",
            "config/http.rs",
            "requests/options.rs",
            "auth/src/redirect.rs",
        ];
        if holds_settings.iter().any(|end| path.ends_with(end)) {
            files.push(path);
        }
    }
}
