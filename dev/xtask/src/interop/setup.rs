//! Installs our programs and those of other projects, and builds the commands of rows.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use fs_err as fs;

use super::row::Row;
use crate::install::{node_modules, python};
use crate::step::{self, root, target};

/// The packages for Node.
pub(crate) const PACKAGES: &[&str] = &[
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server@2.4.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];

/// The delay of a server that starts late, in seconds: longer than any probe waits.
const LATE_START_SECONDS: &str = "2.5";

pub(super) struct Setup {
    modules: PathBuf,
    /// The interpreter for each requirements file.
    pythons: BTreeMap<String, PathBuf>,
    /// The directory for files of rows.
    directory: PathBuf,
    /// Whether times are checked. Not on a machine that may be busy.
    pub(super) checks_time: bool,
}

impl Setup {
    pub(super) fn install(rows: &[Row], checks_time: bool) -> Result<Setup> {
        let modules = node_modules("interop", PACKAGES)?;
        let mut pythons = BTreeMap::new();
        for row in rows.iter().filter(|row| !row.requirements.is_empty()) {
            let requirements = &row.requirements;
            let file = root().join(format!("tests/{requirements}.requirements.txt"));
            pythons.insert(requirements.clone(), python(&file)?);
        }
        let directory = target().join("interop");
        // Servers with a memory would find the files of an earlier run.
        let _ = fs::remove_dir_all(&directory);
        step::write(directory.join("files/ada/hello.txt"), "hello\n")?;
        Ok(Setup {
            modules,
            pythons,
            directory,
            checks_time,
        })
    }

    /// The file for the standard error of a row.
    pub(super) fn log_file(&self, row: &Row) -> PathBuf {
        let name = row
            .name()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        self.directory.join(format!("{name}.log"))
    }

    /// The command that runs these steps with the two ends of a row, and prints a line for each.
    pub(super) fn command(&self, row: &Row, steps: &[&str]) -> Result<Command> {
        let (steps, port) = (steps.join(","), free_port()?);
        Ok(match row.ours.as_str() {
            "client" => self.our_client_command(row, &steps, &port),
            _ => self.their_client_command(row, &steps, &port),
        })
    }

    fn our_client_command(&self, row: &Row, steps: &str, port: &str) -> Command {
        let mut command = Command::new(program("interop-client"));
        let tools = match row.peer.as_str() {
            "files" => format!("files={}", self.files()),
            "everything" | "memory" => row.peer.clone(),
            _ => "ours".to_owned(),
        };
        let mode = match row.mode.as_str() {
            "legacy" => "legacy",
            "" => "patient",
            _ => "automatic",
        };
        command.args([&tools, mode, steps]);
        let path = match row.transport.as_str() {
            "http" => "mcp",
            other => other,
        };
        if path != "stdio" {
            command.args(["--url", &format!("http://127.0.0.1:{port}/{path}")]);
        }
        command.arg("--");
        if row.mode == "late" {
            let start = format!("sleep {LATE_START_SECONDS}; exec \"$0\" \"$@\"");
            command.args(["sh", "-c", &start]);
        }
        command.args(self.server(row, port));
        command
    }

    /// The command of a server of another project.
    fn server(&self, row: &Row, port: &str) -> Vec<OsString> {
        let module = |package: &str| {
            let path = format!("node_modules/@modelcontextprotocol/{package}/dist/index.js");
            OsString::from(self.modules.join(path))
        };
        let transport = row.transport.as_str();
        match row.peer.as_str() {
            "everything" => {
                let port = format!("PORT={port}").into();
                let transport = transport.replace("http", "streamableHttp").into();
                let script = module("server-everything");
                vec!["env".into(), port, "node".into(), script, transport]
            }
            "files" => {
                let script = module("server-filesystem");
                vec!["node".into(), script, self.files().into()]
            }
            "memory" => {
                let file = self.directory.join("memory.jsonl");
                let file = format!("MEMORY_FILE_PATH={}", file.display()).into();
                vec!["env".into(), file, "node".into(), module("server-memory")]
            }
            _ => {
                let transport = match row.requirements.as_str() {
                    "" => transport.to_owned(),
                    _ => transport.replace("http", "streamable-http"),
                };
                let mut command = self.script(row);
                command.push(transport.into());
                command.extend((row.transport != "stdio").then(|| port.into()));
                command
            }
        }
    }

    fn their_client_command(&self, row: &Row, steps: &str, port: &str) -> Command {
        let script = self.script(row);
        let mut command = Command::new(&script[0]);
        let era = match row.mode.as_str() {
            "legacy" => "legacy",
            _ => "automatic",
        };
        command
            .args(&script[1..])
            .args([&row.transport, era, steps]);
        command.arg(program("interop-server")).arg(port);
        command
    }

    /// The command of a script of ours on an SDK.
    fn script(&self, row: &Row) -> Vec<OsString> {
        let script = root().join("tests/interop").join(&row.peer).into();
        match self.pythons.get(&row.requirements) {
            Some(python) => vec![python.into(), script],
            None => vec!["node".into(), script, self.modules.clone().into()],
        }
    }

    fn files(&self) -> String {
        self.directory.join("files").display().to_string()
    }
}

fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// A port that was free a moment ago.
fn free_port() -> Result<String> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    Ok(address.port().to_string())
}
