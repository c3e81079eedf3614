//! Tests `everlink adopt` in a home directory of its own. `../adopt` has configurations of each host: a file, the file after --write
//! (`NAME.after.EXT`, if anything changes), and its servers (`NAME.report`). With `EVERLINK_ACCEPT=1`, the test of these files rewrites them instead.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{EVERLINK, text};

/// A home directory, and a project in it. Dropping this removes both.
struct Home {
    path: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Home {
    fn new(name: &str) -> Home {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adopt-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("project")).expect("a directory");
        Home {
            path,
            variables: Vec::new(),
        }
    }

    /// Runs the program in the project. It knows no other directory than this home.
    fn run(&self, arguments: &[&str]) -> Output {
        self.run_in("project", arguments)
    }

    fn run_in(&self, directory: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(EVERLINK);
        command
            .env_clear()
            .env("HOME", &self.path)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path.join(directory))
            .arg("adopt")
            .args(arguments);
        command.output().expect("the program can be started")
    }

    /// Runs the program, which must exit with this status. Returns its standard output.
    fn run_with_status(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {shown}");
        text(&output.stdout)
    }

    fn json(&self, status: i32, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        let output = self.run_with_status(status, &arguments);
        assert_eq!(output.lines().count(), 1, "{output}");
        serde_json::from_str(&output).expect("JSON")
    }

    fn file(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.file(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, content).expect("the file can be written");
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.file(path)).expect("the file can be read")
    }

    fn read_text(&self, path: &str) -> String {
        text(&self.read(path))
    }

    /// The names of the files in a directory.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.file(directory)).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
        names.sort();
        names
    }

    /// Installs the program in a directory of `PATH`.
    fn install(&mut self) -> PathBuf {
        let directory = self.file("bin");
        fs::create_dir_all(&directory).expect("a directory");
        symlink(EVERLINK, directory.join("everlink")).expect("a link");
        self.variables.push(("PATH", directory.clone()));
        directory.join("everlink")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

const ONE: &str = r#"{"mcpServers": {"one": {"command": "npx", "args": ["-y", "x"]}}}"#;
const ONE_GUARDED: &str = r#"{"mcpServers": {"one": {"command": "everlink", "args": ["guard", "--", "npx", "-y", "x"]}}}"#;
const CURSOR: &str = ".cursor/mcp.json";
const BACKUP: &str = ".cursor/mcp.json.everlink-backup";

/// A configuration of the corpus.
struct Case {
    /// The name of the directory: a host, or `any`.
    host: String,
    path: PathBuf,
}

impl Case {
    fn all() -> Vec<Case> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adopt");
        let mut cases = Vec::new();
        for host in fs::read_dir(root).expect("a directory") {
            let host = host.expect("an entry");
            if host.path().is_file() {
                continue;
            }
            for file in fs::read_dir(host.path()).expect("a directory") {
                let path = file.expect("an entry").path();
                let name = path
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                if !name.contains(".after.") && !name.ends_with(".report") {
                    let host = host.file_name().to_string_lossy().into_owned();
                    cases.push(Case { host, path });
                }
            }
        }
        cases.sort_by(|one, other| one.path.cmp(&other.path));
        assert!(cases.len() >= 45, "{}", cases.len());
        cases
    }

    fn name(&self) -> String {
        let name = self.path.file_name().expect("a name").to_string_lossy();
        format!("{}/{name}", self.host)
    }

    fn before(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the file can be read")
    }

    fn extension(&self) -> String {
        self.path
            .extension()
            .expect("an extension")
            .to_string_lossy()
            .into_owned()
    }

    /// The file after `--write`.
    fn after(&self) -> Vec<u8> {
        let path = self
            .path
            .with_extension(format!("after.{}", self.extension()));
        fs::read(path).unwrap_or_else(|_| self.before())
    }

    /// Copies the file, and returns its name.
    fn copy_to(&self, home: &Home) -> String {
        let name = format!("mcp.{}", self.extension());
        home.write(&format!("project/{name}"), self.before());
        name
    }

    fn arguments<'a>(&'a self, action: &'a str, file: &'a str) -> Vec<&'a str> {
        let mut arguments = vec![action, "--file", file];
        if self.host != "any" {
            arguments.extend(["--host", &self.host]);
        }
        if action == "--write" {
            arguments.extend(["--program", "everlink"]);
        }
        arguments
    }

    fn is_broken(&self) -> bool {
        self.name().contains("broken-")
    }

    /// Rewrites the recorded files.
    fn accept(&self, report: &str, after: &[u8]) {
        fs::write(self.path.with_extension("report"), report).expect("written");
        let path = self
            .path
            .with_extension(format!("after.{}", self.extension()));
        let _ = fs::remove_file(&path);
        if after != self.before() {
            fs::write(path, after).expect("written");
        }
    }
}

/// The servers of a file in lines, or what is wrong with it.
fn summary(report: &Value) -> String {
    let mut lines = String::new();
    for problem in report["problems"].as_array().expect("a list") {
        lines += &format!(
            "{} {} {}\n",
            problem["line"], problem["column"], problem["error"]
        );
    }
    for file in report["files"].as_array().expect("a list") {
        for server in file["servers"].as_array().expect("a list") {
            let table = server["table"].as_array().expect("a list");
            let table: Vec<&str> = table.iter().filter_map(Value::as_str).collect();
            lines += &format!("{} {}", table.join("."), server["name"]);
            lines += &format!(" {}", server["state"].as_str().expect("a text"));
            for key in ["reason", "program"] {
                lines += &server[key]
                    .as_str()
                    .map(|text| format!(" {text}"))
                    .unwrap_or_default();
            }
            lines.push('\n');
        }
    }
    lines
}

#[test]
fn adopt_writes_every_configuration_as_recorded_and_undo_restores_every_byte() {
    let is_accepted = std::env::var_os("EVERLINK_ACCEPT").is_some();
    for case in Case::all() {
        let name = case.name();
        let home = Home::new("corpus");
        let file = &case.copy_to(&home);
        let path = &format!("project/{file}");
        let check = case.arguments("--check", file);

        let output = home.run(&[&check[..], &["--json"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let report = summary(&report);
        let can_be_guarded = report.contains(" unguarded");
        let status = match (case.is_broken(), can_be_guarded) {
            (true, _) => 4,
            (false, true) => 1,
            (false, false) => 0,
        };
        assert_eq!(output.status.code(), Some(status), "{name}: {report}");

        let status = if case.is_broken() { 4 } else { 0 };
        home.run_with_status(status, &case.arguments("--write", file));
        let written = home.read(path);
        if is_accepted {
            case.accept(&report, &written);
        }
        let recorded = fs::read_to_string(case.path.with_extension("report"));
        assert_eq!(report, recorded.expect("a recorded report"), "{name}");
        assert_eq!(text(&written), text(&case.after()), "{name}");
        assert_eq!(written, case.after(), "{name}");
        assert_eq!(written != case.before(), can_be_guarded, "{name}");
        let backup = format!("{path}.everlink-backup");
        if can_be_guarded {
            assert_eq!(home.read(&backup), case.before(), "{name}");
        }

        let names = home.names("project");
        home.run_with_status(status, &case.arguments("--write", file));
        assert_eq!(home.read(path), written, "{name}: a second run changed it");
        assert_eq!(home.names("project"), names, "{name}");
        home.run_with_status(status, &check);

        home.run_with_status(status, &case.arguments("--undo", file));
        assert_eq!(home.read(path), case.before(), "{name}: not restored");
        assert_eq!(home.names("project"), [file.as_str()], "{name}");
    }
}

#[test]
fn adopt_undo_keeps_other_changes_in_every_configuration() {
    for case in Case::all().into_iter().filter(|case| !case.is_broken()) {
        let name = case.name();
        let home = Home::new("corpus-changed");
        let file = &case.copy_to(&home);
        let path = &format!("project/{file}");
        home.run_with_status(0, &case.arguments("--write", file));
        let mut changed = home.read(path);
        changed.extend(b"\n\n");
        home.write(path, &changed);
        home.run_with_status(0, &case.arguments("--undo", file));
        let mut expected = text(&case.before()) + "\n\n";
        // What was null becomes an empty list, which means the same.
        expected = expected.replace("\"args\": null", "\"args\": []");
        assert_eq!(home.read_text(path), expected, "{name}");
        assert_eq!(home.names("project"), [file.as_str()], "{name}");
    }
}

#[test]
fn adopt_finds_the_files_of_all_hosts_and_writes_them() {
    let home = Home::new("hosts");
    let zed = ONE.replace("mcpServers", "context_servers");
    let vscode = ONE.replace("mcpServers", "servers");
    let codex = "[mcp_servers.one]\ncommand = \"npx\"\n";
    let files = [
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            ONE,
        ),
        ("claude-code", ".claude.json", ONE),
        ("claude-code", "project/.mcp.json", ONE),
        ("cursor", CURSOR, ONE),
        ("cursor", "project/.cursor/mcp.json", ONE),
        ("vscode", ".config/Code/User/mcp.json", &vscode),
        ("vscode", "project/.vscode/mcp.json", &vscode),
        ("windsurf", ".codeium/windsurf/mcp_config.json", ONE),
        ("zed", ".config/zed/settings.json", &zed),
        ("zed", "project/.zed/settings.json", &zed),
        ("codex", ".codex/config.toml", codex),
        ("codex", "project/.codex/config.toml", codex),
        ("gemini", ".gemini/settings.json", ONE),
        ("gemini", "project/.gemini/settings.json", ONE),
    ];
    for (_, path, content) in files {
        home.write(path, content);
    }
    let shown = home.run_with_status(0, &[]);
    assert!(
        shown.contains("\n14 servers can be guarded, 0 are already guarded, 0 are left alone."),
        "{shown}"
    );
    for (_, path, content) in files {
        assert_eq!(
            home.read_text(path),
            content,
            "{path}: changed without --write"
        );
        assert!(shown.contains(path), "{path}: {shown}");
    }
    let report = home.json(0, &["--write"]);
    let written = report["files"].as_array().expect("a list");
    assert_eq!(written.len(), files.len(), "{report}");
    for ((host, path, content), file) in files.iter().zip(written) {
        assert_eq!(file["host"], *host);
        assert_eq!(file["path"], home.file(path).to_str().expect("UTF-8"));
        assert_eq!(file["changed"], true);
        let scope = if path.starts_with("project") {
            "project"
        } else {
            "user"
        };
        assert_eq!(file["scope"], scope);
        assert_eq!(file["servers"][0]["state"], "guarded", "{path}");
        assert!(
            home.read_text(path).contains("\"guard\", \"--\", \"npx\""),
            "{path}"
        );
        assert_eq!(home.read_text(&format!("{path}.everlink-backup")), *content);
    }
    home.run_with_status(0, &["--check"]);
    let shown = home.run_with_status(0, &["--undo"]);
    assert!(
        shown.contains("The guards of 14 servers are removed."),
        "{shown}"
    );
    for (_, path, content) in files {
        assert_eq!(home.read_text(path), content, "{path}");
        assert!(
            !home.file(&format!("{path}.everlink-backup")).exists(),
            "{path}"
        );
    }
}

#[test]
fn adopt_honours_the_variables_that_move_configurations() {
    let mut home = Home::new("variables");
    for (variable, path, content) in [
        ("CLAUDE_CONFIG_DIR", "c/.claude.json", ONE),
        (
            "CODEX_HOME",
            "x/config.toml",
            "[mcp_servers.one]\ncommand = \"npx\"\n",
        ),
        ("GEMINI_CLI_HOME", "g/.gemini/settings.json", ONE),
        (
            "XDG_CONFIG_HOME",
            "xdg/Claude/claude_desktop_config.json",
            ONE,
        ),
    ] {
        home.write(path, content);
        let root = path.split('/').next().expect("a directory");
        home.variables.push((variable, home.file(root)));
    }
    // These would be read without the variables.
    for path in [
        ".claude.json",
        ".gemini/settings.json",
        ".codex/config.toml",
    ] {
        home.write(path, "broken");
    }
    let report = home.json(0, &[]);
    assert_eq!(
        report["files"].as_array().expect("a list").len(),
        4,
        "{report}"
    );
}

#[test]
fn adopt_handles_a_file_once_if_the_project_is_the_home_directory() {
    let home = Home::new("home-project");
    home.write(CURSOR, ONE);
    let output = home.run_in("", &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let files = report["files"].as_array().expect("a list");
    assert_eq!(files.len(), 1, "{report}");
    assert_eq!(files[0]["scope"], "user");
}

#[test]
fn adopt_handles_a_file_once_if_it_is_named_by_two_paths() {
    let home = Home::new("named-twice");
    home.write("project/mcp.json", ONE);
    let files = ["--file", "mcp.json", "--file", "./mcp.json"];
    let report = home.json(0, &[&["--write"], &files[..]].concat());
    assert_eq!(
        report["files"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
}

#[test]
fn adopt_names_the_program_by_how_the_host_is_started() {
    let mut home = Home::new("program");
    for path in [CURSOR, "project/.cursor/mcp.json", ".gemini/settings.json"] {
        home.write(path, ONE);
    }
    let program_of = |home: &Home, index: usize, arguments: &[&str]| {
        let report = home.json(0, arguments);
        report["files"][index]["program"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    // Not in PATH: the path of this executable.
    let executable = fs::canonicalize(EVERLINK).expect("a path");
    let executable = executable.to_str().expect("UTF-8");
    for index in 0..3 {
        assert_eq!(program_of(&home, index, &[]), executable);
    }
    let installed = home.install();
    let installed = installed.to_str().expect("UTF-8");
    let expected = [installed, "everlink", "everlink"];
    for (index, expected) in expected.into_iter().enumerate() {
        assert_eq!(program_of(&home, index, &[]), expected);
        assert_eq!(
            program_of(&home, index, &["--program", "/opt/everlink"]),
            "/opt/everlink"
        );
    }
    // Another program of this name is first in PATH.
    home.write("other/everlink", "#!/bin/sh\n");
    let path = format!(
        "{}:{}",
        home.file("other").display(),
        home.file("bin").display()
    );
    home.variables.push(("PATH", path.into()));
    assert_eq!(program_of(&home, 1, &[]), executable);
}

#[test]
fn adopt_keeps_the_mode_and_writes_through_a_symbolic_link() {
    let home = Home::new("link");
    home.write("dotfiles/cursor.json", ONE);
    let target = home.file("dotfiles/cursor.json");
    fs::set_permissions(&target, Permissions::from_mode(0o640)).expect("permissions");
    fs::create_dir(home.file(".cursor")).expect("a directory");
    symlink("../dotfiles/cursor.json", home.file(CURSOR)).expect("a link");
    home.run_with_status(0, &["--write", "--program", "everlink"]);
    let mode = |path: &str| {
        let metadata = fs::symlink_metadata(home.file(path)).expect("a file");
        assert!(metadata.is_file(), "{path}");
        metadata.permissions().mode() & 0o777
    };
    assert!(home.file(CURSOR).is_symlink());
    assert_eq!(home.read_text("dotfiles/cursor.json"), ONE_GUARDED);
    assert_eq!(mode("dotfiles/cursor.json"), 0o640);
    assert_eq!(mode("dotfiles/cursor.json.everlink-backup"), 0o640);
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
    home.run_with_status(0, &["--undo"]);
    assert!(home.file(CURSOR).is_symlink());
    assert_eq!(home.read_text("dotfiles/cursor.json"), ONE);
    assert_eq!(mode("dotfiles/cursor.json"), 0o640);
    assert_eq!(home.names("dotfiles"), ["cursor.json"]);
}

#[test]
fn adopt_reports_files_that_it_cannot_change_and_handles_the_others() {
    let home = Home::new("problems");
    home.write(
        ".config/Claude/claude_desktop_config.json",
        "{\n  \"mcpServers\": {\n    oops\n  }\n}",
    );
    home.write(CURSOR, ONE);
    home.write(".gemini/settings.json", ONE);
    let read_only = home.file(".gemini/settings.json");
    fs::set_permissions(&read_only, Permissions::from_mode(0o444)).expect("permissions");
    let output = home.run(&["--write", "--program", "everlink"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("claude_desktop_config.json: line 3, column 5: key must be a string; the file is left alone: correct it"), "{stderr}");
    assert!(
        stderr.contains("settings.json: it cannot be written: the file is read-only"),
        "{stderr}"
    );
    assert_eq!(home.read_text(CURSOR), ONE_GUARDED);
    assert_eq!(home.read_text(".gemini/settings.json"), ONE);
    assert_eq!(home.names(".gemini"), ["settings.json"]);
    let report = home.json(4, &["--check"]);
    assert_eq!(report["problems"][0]["line"], 3, "{report}");
    assert_eq!(report["problems"][0]["column"], 5, "{report}");
    assert_eq!(report["problems"][0]["host"], "claude-desktop", "{report}");
}

#[test]
fn adopt_keeps_every_backup_and_undo_removes_the_guards_of_all_runs() {
    let home = Home::new("two-runs");
    home.write(CURSOR, ONE);
    let write = ["--write", "--program", "everlink"];
    home.run_with_status(0, &write);
    let changed = ONE_GUARDED.replace("{\"one\"", "{\"two\": {\"command\": \"two\"}, \"one\"");
    home.write(CURSOR, &changed);
    home.run_with_status(0, &write);
    assert_eq!(home.read_text(BACKUP), ONE);
    assert_eq!(home.read_text(&format!("{BACKUP}-2")), changed);
    home.run_with_status(0, &["--undo"]);
    let expected = ONE.replace("{\"one\"", "{\"two\": {\"command\": \"two\"}, \"one\"");
    assert_eq!(home.read_text(CURSOR), expected);
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
}

#[test]
fn adopt_writes_options_for_the_guards_and_undo_removes_them() {
    let home = Home::new("options");
    home.write(CURSOR, ONE);
    let options = ["--", "--log", "off", "--status", "127.0.0.1:0"];
    home.run_with_status(
        0,
        &[&["--write", "--program", "everlink"], &options[..]].concat(),
    );
    let words = r#""guard", "--log", "off", "--status", "127.0.0.1:0", "--""#;
    let expected = ONE_GUARDED.replace(r#""guard", "--""#, words);
    assert_eq!(home.read_text(CURSOR), expected);
    home.run_with_status(0, &["--undo"]);
    assert_eq!(home.read_text(CURSOR), ONE);
}

#[test]
fn adopt_undo_of_one_server_keeps_the_backup_for_the_others() {
    let home = Home::new("one-server");
    let both = ONE.replace("{\"one\"", "{\"two\": {\"command\": \"two\"}, \"one\"");
    home.write(CURSOR, &both);
    home.run_with_status(0, &["--write", "--program", "everlink"]);
    home.run_with_status(0, &["--undo", "--server", "two"]);
    let expected = ONE_GUARDED.replace("{\"one\"", "{\"two\": {\"command\": \"two\"}, \"one\"");
    assert_eq!(home.read_text(CURSOR), expected);
    assert_eq!(home.read_text(BACKUP), both);
    home.run_with_status(0, &["--undo"]);
    assert_eq!(home.read_text(CURSOR), both);
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
}

#[test]
fn adopt_undo_leaves_guards_that_write_did_not_add() {
    let home = Home::new("by-hand");
    home.write(CURSOR, ONE_GUARDED);
    let shown = home.run_with_status(0, &["--undo"]);
    assert!(
        shown.contains("one  stays guarded: no backup shows it without a guard"),
        "{shown}"
    );
    assert!(shown.contains("There is nothing to undo."), "{shown}");
    assert_eq!(home.read_text(CURSOR), ONE_GUARDED);
    home.run_with_status(0, &["--undo", "--server", "one"]);
    assert_eq!(home.read_text(CURSOR), ONE);
}

/// The host looks for the program in the `PATH` of the entry, where `everlink` need not be.
#[test]
fn adopt_writes_an_absolute_path_into_an_entry_with_a_path_of_its_own() {
    let mut home = Home::new("own-path");
    let installed = home.install();
    let installed = installed.to_str().expect("UTF-8");
    let servers = r#"{"mcpServers": {"plain": {"command": "x", "env": {"KEY": "1"}}, "own": {"command": "x", "env": {"PATH": "/opt/x"}}}}"#;
    home.write(".gemini/settings.json", servers);
    home.run_with_status(0, &["--write"]);
    let written = home.read_text(".gemini/settings.json");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["mcpServers"]["plain"]["command"], "everlink");
    assert_eq!(written["mcpServers"]["own"]["command"], installed);
    home.run_with_status(0, &["--undo"]);
    assert_eq!(home.read_text(".gemini/settings.json"), servers);
}

#[test]
fn adopt_is_narrowed_to_hosts_servers_and_files() {
    let home = Home::new("narrowed");
    let both = ONE.replace("{\"one\"", "{\"two\": {\"command\": \"two\"}, \"one\"");
    home.write(CURSOR, &both);
    home.write(".gemini/settings.json", &both);
    home.write(
        "project/elsewhere.json",
        ONE.replace("mcpServers", "context_servers"),
    );
    let names = |report: &Value| {
        let files = report["files"].as_array().expect("a list");
        let servers = files
            .iter()
            .flat_map(|file| file["servers"].as_array().expect("a list"));
        let names: Vec<String> = servers.map(|server| server["name"].to_string()).collect();
        (files.len(), names.join(" "))
    };
    assert_eq!(
        names(&home.json(0, &["--host", "gemini"])),
        (1, "\"two\" \"one\"".into())
    );
    let two = ["--host", "cursor", "--host", "gemini", "--server", "two"];
    assert_eq!(names(&home.json(0, &two)), (2, "\"two\" \"two\"".into()));
    let file = ["--file", "elsewhere.json"];
    assert_eq!(names(&home.json(0, &file)), (1, "\"one\"".into()));
    let zed = ["--file", "elsewhere.json", "--host", "zed"];
    assert_eq!(home.json(0, &zed)["files"][0]["host"], "zed");
    // A file of a known place is one of that host.
    let known = home.file(CURSOR);
    let known = ["--file", known.to_str().expect("UTF-8")];
    assert_eq!(home.json(0, &known)["files"][0]["host"], "cursor");
    home.run_with_status(
        0,
        &[
            "--write",
            "--server",
            "two",
            "--host",
            "cursor",
            "--program",
            "everlink",
        ],
    );
    assert_eq!(home.read_text(".gemini/settings.json"), both);
    assert!(
        home.read_text(CURSOR)
            .ends_with(&ONE[ONE.find("\"one\"").expect("a server")..])
    );
    home.run_with_status(1, &["--check"]);
    home.run_with_status(0, &["--check", "--server", "two", "--host", "cursor"]);
}

#[test]
fn adopt_rejects_arguments_that_make_no_sense() {
    let home = Home::new("usage");
    home.write(CURSOR, ONE);
    let cases: [(&[&str], i32, &str); 19] = [
        (&["--program", "/opt/guard"], 2, "must be `everlink`"),
        (&["--host", "emacs"], 2, "claude-desktop"),
        (
            &["--server", "no-such"],
            2,
            "no configuration has a server with the name `no-such`",
        ),
        (
            &["--write", "--server", "no-such"],
            2,
            "`everlink adopt` lists all servers",
        ),
        (&["--write", "--undo"], 2, "cannot be used"),
        (&["--write", "--check"], 2, "cannot be used"),
        (&["--undo", "--program", "x"], 2, "cannot be used"),
        (&["--program", "./everlink"], 2, "absolute path"),
        (
            &["--write", "--", "--lgo", "off"],
            2,
            "guards: unexpected argument '--lgo'",
        ),
        (
            &["--write", "--", "--status", "127.0.0.1:9"],
            2,
            "needs port 0",
        ),
        (
            &["--write", "--", "--record", "x.jsonl"],
            2,
            "given one file",
        ),
        (
            &["--write", "--", "--env", "A=1"],
            2,
            "belong to one server",
        ),
        (
            &["--write", "--", "--server-stderr", "x.log"],
            2,
            "guards: --server-stderr does not fit with a file",
        ),
        (
            &["--write", "--", "--cors", "https://a.example"],
            2,
            "guards: --cors needs --listen",
        ),
        (
            &["--write", "--", "--store", "redis://127.0.0.1"],
            2,
            "guards: --store needs --listen",
        ),
        (
            &["--write", "--", "--allow-host", "shop"],
            2,
            "guards: --allow-host needs",
        ),
        (&["--undo", "--", "--log", "off"], 2, "cannot be used"),
        (
            &["--file", "none.json"],
            4,
            "none.json: there is no such file",
        ),
        (
            &["--file", "x.json", "--host", "zed", "--host", "codex"],
            2,
            "at most one --host",
        ),
    ];
    for (arguments, status, hint) in cases {
        let output = home.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
    }
    assert_eq!(home.read_text(CURSOR), ONE);
}

#[test]
fn adopt_says_where_it_looked_if_there_is_no_configuration() {
    let home = Home::new("nothing");
    for arguments in [&[][..], &["--write"], &["--undo"], &["--check"]] {
        let shown = home.run_with_status(0, arguments);
        assert!(
            shown.starts_with("No configuration of a host was found."),
            "{shown}"
        );
        assert!(
            shown.contains(".codeium/windsurf/mcp_config.json\n"),
            "{shown}"
        );
    }
}

#[test]
fn adopt_never_shows_arguments_or_variables() {
    let home = Home::new("secrets");
    let secret = r#"{"mcpServers": {"a\u001b[2J": {"command": "npx", "args": ["--key", "s3cret"], "env": {"KEY": "s3cret"}}}}"#;
    home.write(CURSOR, secret);
    for arguments in [
        &[][..],
        &["--json"],
        &["--write"],
        &["--check"],
        &["--undo"],
    ] {
        let output = home.run(arguments);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}

#[test]
fn adopt_writes_a_command_that_starts_the_guarded_server() {
    let home = Home::new("guarded-server");
    let config = json!({"mcpServers": {"demo": {"command": EVERLINK, "args": ["demo-server"]}}});
    home.write(CURSOR, config.to_string());
    home.run_with_status(0, &["--write"]);
    let config: Value = serde_json::from_slice(&home.read(CURSOR)).expect("JSON");
    let server = &config["mcpServers"]["demo"];
    let arguments = server["args"].as_array().expect("a list");
    assert_eq!(arguments[0], "guard", "{config}");
    let mut process = Command::new(server["command"].as_str().expect("a text"))
        .args(arguments.iter().filter_map(Value::as_str))
        .env("XDG_CACHE_HOME", home.file("cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the guard starts");
    let initialize = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    });
    let mut stdin = process.stdin.take().expect("a pipe");
    writeln!(stdin, "{initialize}").expect("the guard reads");
    let mut answer = String::new();
    let stdout = process.stdout.take().expect("a pipe");
    BufReader::new(stdout)
        .read_line(&mut answer)
        .expect("an answer");
    drop(stdin);
    process.wait().expect("the guard ends");
    assert!(answer.contains("everlink-demo"), "{answer}");
}
