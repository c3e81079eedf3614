//! Installs our programs and those of other projects, and builds the commands of rows.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::row::{Era, Ours, Pace, Peer, ROWS, Row, Step, Transport};
use crate::install::{node_modules, python};
use crate::step::{root, target};

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
    pythons: BTreeMap<&'static str, PathBuf>,
    /// The directory for files of rows.
    directory: PathBuf,
    /// Whether times are checked. Not on a machine that may be busy.
    pub(super) checks_time: bool,
}

impl Setup {
    pub(super) fn install(checks_time: bool) -> Result<Setup, String> {
        let modules = node_modules("interop", PACKAGES)?;
        let mut pythons = BTreeMap::new();
        for row in ROWS {
            if let Peer::Python { requirements, .. } = row.peer {
                let file = root().join(format!("tests/{requirements}.requirements.txt"));
                pythons.insert(requirements, python(&file)?);
            }
        }
        let directory = target().join("interop");
        let failed = |error| format!("{} cannot be written: {error}", directory.display());
        // Servers with a memory would find the files of an earlier run.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("files/ada")).map_err(failed)?;
        fs::write(directory.join("files/ada/hello.txt"), "hello\n").map_err(failed)?;
        Ok(Setup {
            modules,
            pythons,
            directory,
            checks_time,
        })
    }

    /// The file for the standard error of a row.
    pub(super) fn log_file(&self, row: &Row) -> PathBuf {
        let replace_symbols = |letter: char| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        };
        let name: String = row.name().chars().map(replace_symbols).collect();
        self.directory.join(format!("{name}.log"))
    }

    /// The command that runs these steps with the two ends of a row, and prints a line for each.
    pub(super) fn command(&self, row: &Row, steps: &[Step]) -> Result<Command, String> {
        let steps: Vec<&str> = steps.iter().map(|step| step.name()).collect();
        let (steps, port) = (steps.join(","), free_port()?);
        Ok(match row.ours {
            Ours::Client => self.our_client_command(row, &steps, &port),
            Ours::Server => self.their_client_command(row, &steps, &port),
        })
    }

    fn our_client_command(&self, row: &Row, steps: &str, port: &str) -> Command {
        let mut command = Command::new(program("interop-client"));
        let tools = match row.peer {
            Peer::Everything => "everything".to_owned(),
            Peer::Files => format!("files={}", self.files()),
            Peer::Memory => "memory".to_owned(),
            Peer::Node { .. } | Peer::Python { .. } => "ours".to_owned(),
        };
        let mode = match (row.era, row.pace) {
            (Era::Legacy, _) => "legacy",
            (Era::Automatic, Pace::Usual) => "patient",
            (Era::Automatic, Pace::Late | Pace::Measured) => "automatic",
        };
        command.args([&tools, mode, steps]);
        let path = match row.transport {
            Transport::Http => Some("mcp"),
            Transport::Sse => Some("sse"),
            Transport::Stdio => None,
        };
        if let Some(path) = path {
            command.arg("--url");
            command.arg(format!("http://127.0.0.1:{port}/{path}"));
        }
        command.arg("--");
        if row.pace == Pace::Late {
            let start = format!("sleep {LATE_START_SECONDS}; exec \"$0\" \"$@\"");
            command.args(["sh", "-c", &start]);
        }
        self.add_server(&mut command, row, port);
        command
    }

    /// Adds the command of a server of another project.
    fn add_server(&self, command: &mut Command, row: &Row, port: &str) {
        let module_path = |package: &str| {
            let path = format!("node_modules/@modelcontextprotocol/{package}/dist/index.js");
            self.modules.join(path)
        };
        match row.peer {
            Peer::Everything => {
                let transport = match row.transport {
                    Transport::Http => "streamableHttp",
                    Transport::Sse => "sse",
                    Transport::Stdio => "stdio",
                };
                command.args(["env", &format!("PORT={port}"), "node"]);
                command.arg(module_path("server-everything")).arg(transport);
            }
            Peer::Files => {
                command.arg("node").arg(module_path("server-filesystem"));
                command.arg(self.files());
            }
            Peer::Memory => {
                let file = self.directory.join("memory.jsonl");
                command.args(["env", &format!("MEMORY_FILE_PATH={}", file.display())]);
                command.arg("node").arg(module_path("server-memory"));
            }
            Peer::Node { script } => {
                command
                    .arg("node")
                    .arg(script_path(script))
                    .arg(&self.modules);
                match row.transport {
                    Transport::Stdio => command.arg("stdio"),
                    Transport::Http | Transport::Sse => command.args(["http", port]),
                };
            }
            Peer::Python {
                requirements,
                script,
            } => {
                command
                    .arg(self.python(requirements))
                    .arg(script_path(script));
                match row.transport {
                    Transport::Http => command.args(["streamable-http", port]),
                    Transport::Sse => command.args(["sse", port]),
                    Transport::Stdio => command.arg("stdio"),
                };
            }
        }
    }

    fn their_client_command(&self, row: &Row, steps: &str, port: &str) -> Command {
        let mut command = match row.peer {
            Peer::Python {
                requirements,
                script,
            } => {
                let mut command = Command::new(self.python(requirements));
                command.arg(script_path(script));
                command
            }
            Peer::Node { script } => {
                let mut command = Command::new("node");
                command.arg(script_path(script)).arg(&self.modules);
                command
            }
            Peer::Everything | Peer::Files | Peer::Memory => {
                unreachable!("those are servers")
            }
        };
        let transport = match row.transport {
            Transport::Http => "http",
            Transport::Sse => "sse",
            Transport::Stdio => "stdio",
        };
        let era = match row.era {
            Era::Automatic => "automatic",
            Era::Legacy => "legacy",
        };
        command.args([transport, era, steps]);
        command.arg(program("interop-server"));
        command.arg(port);
        command
    }

    fn python(&self, requirements: &str) -> &Path {
        self.pythons
            .get(requirements)
            .map_or(Path::new("python3"), PathBuf::as_path)
    }

    fn files(&self) -> String {
        self.directory.join("files").display().to_string()
    }
}

fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

fn script_path(script: &str) -> PathBuf {
    root().join("tests/interop").join(script)
}

/// A port that was free a moment ago.
fn free_port() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = listener.map_err(|error| format!("there is no free port: {error}"))?;
    Ok(address.port().to_string())
}
