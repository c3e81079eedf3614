//! The table of hosts: where each one keeps its configuration, and in which shape. Reads no file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program that starts MCP servers from a configuration file.
#[derive(Debug)]
pub(super) struct Host {
    /// The value of `--host`.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Whether a person starts the host from a desktop, so that it may not have the `PATH` of a shell.
    pub(super) is_desktop: bool,
    pub(super) shape: Shape,
    places: &'static [Place],
}

/// The syntax of a configuration file, and the names of the members that matter here.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) syntax: Syntax,
    /// The paths of the tables that map names to servers. `*` stands for any key.
    pub(super) tables: &'static [&'static [&'static str]],
    /// The members of a server that disable it, and the value that does so. A host that ignores such a member starts the server, so the member is
    /// listed only for hosts that honour it.
    pub(super) disabling_members: &'static [(&'static str, bool)],
    /// The path of a list with the names of disabled servers.
    pub(super) disabled_names: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON. Comments and trailing commas are accepted for every host: those that do not allow them report the file themselves.
    Json,
    Toml,
}

/// Whose servers a file configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of one user of this machine.
    User,
    /// Those of a project. The file is often shared with other people in a repository.
    Project,
}

/// A place of a configuration file. An operating system without a path has no such file.
#[derive(Debug)]
struct Place {
    scope: Scope,
    /// Environment variables that name a directory, and the path in it. The first variable that is set wins over the paths below.
    variables: &'static [(&'static str, &'static str)],
    linux: Option<(Root, &'static str)>,
    macos: Option<(Root, &'static str)>,
    windows: Option<(Root, &'static str)>,
}

/// The directory that a path starts from.
#[derive(Clone, Copy, Debug)]
enum Root {
    /// The directory for settings of applications: `$XDG_CONFIG_HOME` or `~/.config`, `~/Library/Application Support`, or `%APPDATA%`.
    Config,
    Home,
    /// `%LOCALAPPDATA%`.
    LocalAppData,
    /// The current directory.
    Project,
}

const fn anywhere(scope: Scope, root: Root, path: &'static str) -> Place {
    Place {
        scope,
        variables: &[],
        linux: Some((root, path)),
        macos: Some((root, path)),
        windows: Some((root, path)),
    }
}

const fn home(path: &'static str) -> Place {
    anywhere(Scope::User, Root::Home, path)
}

const fn config(path: &'static str) -> Place {
    anywhere(Scope::User, Root::Config, path)
}

const fn project(path: &'static str) -> Place {
    anywhere(Scope::Project, Root::Project, path)
}

impl Place {
    const fn or_in(self, variables: &'static [(&'static str, &'static str)]) -> Place {
        Place { variables, ..self }
    }
}

/// The shape that most hosts share.
const MCP_SERVERS: Shape = Shape {
    syntax: Syntax::Json,
    tables: &[&["mcpServers"]],
    disabling_members: &[],
    disabled_names: &[],
};

/// All known hosts, in the order of the output.
pub(super) const HOSTS: &[Host] = &[
    Host {
        id: "claude-desktop",
        title: "Claude Desktop",
        is_desktop: true,
        shape: MCP_SERVERS,
        places: &[
            config("Claude/claude_desktop_config.json"),
            // Windows redirects the settings of applications from the Microsoft Store, and of the present installer.
            Place {
                scope: Scope::User,
                variables: &[],
                linux: None,
                macos: None,
                windows: Some((
                    Root::LocalAppData,
                    "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
                )),
            },
        ],
    },
    Host {
        id: "claude-code",
        title: "Claude Code",
        is_desktop: false,
        shape: Shape {
            tables: &[&["mcpServers"], &["projects", "*", "mcpServers"]],
            ..MCP_SERVERS
        },
        places: &[
            home(".claude.json").or_in(&[("CLAUDE_CONFIG_DIR", ".claude.json")]),
            project(".mcp.json"),
        ],
    },
    Host {
        id: "cursor",
        title: "Cursor",
        is_desktop: true,
        shape: MCP_SERVERS,
        places: &[home(".cursor/mcp.json"), project(".cursor/mcp.json")],
    },
    Host {
        id: "vscode",
        title: "VS Code",
        is_desktop: true,
        shape: Shape {
            tables: &[&["servers"]],
            ..MCP_SERVERS
        },
        places: &[
            config("Code/User/mcp.json").or_in(&[
                ("VSCODE_PORTABLE", "user-data/User/mcp.json"),
                ("VSCODE_APPDATA", "Code/User/mcp.json"),
            ]),
            config("Code - Insiders/User/mcp.json"),
            config("VSCodium/User/mcp.json"),
            project(".vscode/mcp.json"),
        ],
    },
    Host {
        id: "windsurf",
        title: "Windsurf",
        is_desktop: true,
        shape: Shape {
            disabling_members: &[("disabled", true)],
            ..MCP_SERVERS
        },
        places: &[
            home(".codeium/windsurf/mcp_config.json"),
            // The plugins for other editors.
            home(".codeium/mcp_config.json"),
        ],
    },
    Host {
        id: "zed",
        title: "Zed",
        is_desktop: true,
        shape: Shape {
            tables: &[&["context_servers"]],
            disabling_members: &[("enabled", false)],
            ..MCP_SERVERS
        },
        places: &[
            Place {
                scope: Scope::User,
                variables: &[("FLATPAK_XDG_CONFIG_HOME", "zed/settings.json")],
                linux: Some((Root::Config, "zed/settings.json")),
                macos: Some((Root::Home, ".config/zed/settings.json")),
                windows: Some((Root::Config, "Zed/settings.json")),
            },
            project(".zed/settings.json"),
        ],
    },
    Host {
        id: "codex",
        title: "Codex",
        is_desktop: false,
        shape: Shape {
            syntax: Syntax::Toml,
            tables: &[&["mcp_servers"]],
            disabling_members: &[("enabled", false)],
            disabled_names: &[],
        },
        places: &[
            home(".codex/config.toml").or_in(&[("CODEX_HOME", "config.toml")]),
            project(".codex/config.toml"),
        ],
    },
    Host {
        id: "gemini",
        title: "Gemini CLI",
        is_desktop: false,
        shape: Shape {
            disabled_names: &["mcp", "excluded"],
            ..MCP_SERVERS
        },
        places: &[
            home(".gemini/settings.json").or_in(&[("GEMINI_CLI_HOME", ".gemini/settings.json")]),
            project(".gemini/settings.json"),
        ],
    },
];

/// The shapes of files that no host is named for, in the order in which they are tried. Hosts differ in what disables a server, so any of these
/// members does.
pub(super) const ANY_JSON: &[Shape] = &[
    any_json(&[&["mcpServers"], &["projects", "*", "mcpServers"]]),
    any_json(&[&["context_servers"]]),
    any_json(&[&["servers"]]),
];

const fn any_json(tables: &'static [&'static [&'static str]]) -> Shape {
    Shape {
        syntax: Syntax::Json,
        tables,
        disabling_members: &[("disabled", true), ("enabled", false)],
        disabled_names: &[],
    }
}

impl Host {
    pub(super) fn by_id(id: &str) -> Option<&'static Host> {
        HOSTS.iter().find(|host| host.id == id)
    }

    /// Where this host may keep its configuration on this machine. Most of these files do not exist.
    pub(super) fn paths(&self, machine: &Machine<'_>) -> Vec<(Scope, PathBuf)> {
        let paths = self.places.iter();
        paths
            .filter_map(|place| Some((place.scope, place.path(machine)?)))
            .collect()
    }
}

/// An operating system. Configuration files have different paths on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Linux,
    MacOs,
    Windows,
}

impl System {
    pub(super) const CURRENT: System = if cfg!(windows) {
        System::Windows
    } else if cfg!(target_os = "macos") {
        System::MacOs
    } else {
        System::Linux
    };
}

/// The facts about this machine that the paths of configuration files depend on.
pub(super) struct Machine<'a> {
    pub(super) system: System,
    pub(super) current_directory: PathBuf,
    /// Reads an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Machine<'_> {
    /// The absolute path in a variable. The hosts ignore an empty variable, too.
    fn directory(&self, variable: &str) -> Option<PathBuf> {
        let path = (self.variable)(variable).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    }

    fn root(&self, root: Root) -> Option<PathBuf> {
        let home = || match self.system {
            System::Windows => self.directory("USERPROFILE"),
            System::Linux | System::MacOs => self.directory("HOME"),
        };
        match (root, self.system) {
            (Root::Project, _) => Some(self.current_directory.clone()),
            (Root::Home, _) => home(),
            (Root::LocalAppData, _) => self.directory("LOCALAPPDATA"),
            (Root::Config, System::Windows) => self
                .directory("APPDATA")
                .or_else(|| Some(under(&home()?, "AppData/Roaming"))),
            (Root::Config, System::MacOs) => Some(under(&home()?, "Library/Application Support")),
            (Root::Config, System::Linux) => self
                .directory("XDG_CONFIG_HOME")
                .or_else(|| Some(home()?.join(".config"))),
        }
    }
}

impl Place {
    fn path(&self, machine: &Machine<'_>) -> Option<PathBuf> {
        for (variable, path) in self.variables {
            // A relative path is taken as it is: the host resolves it in its own directory, which is most likely this one.
            let directory = (machine.variable)(variable).filter(|value| !value.is_empty());
            if let Some(directory) = directory {
                return Some(under(&machine.current_directory.join(directory), path));
            }
        }
        let (root, path) = match machine.system {
            System::Linux => self.linux?,
            System::MacOs => self.macos?,
            System::Windows => self.windows?,
        };
        Some(under(&machine.root(root)?, path))
    }
}

/// Appends a path with the separators of this operating system.
fn under(directory: &Path, path: &str) -> PathBuf {
    let mut whole = directory.to_owned();
    whole.extend(path.split('/'));
    whole
}

// The paths of these tests are absolute only on Unix.
#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// All paths of a host, with `/` as the separator.
    fn paths(id: &str, system: System, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let machine = Machine {
            system,
            current_directory: "/work".into(),
            variable: &variable,
        };
        let host = Host::by_id(id).expect("a known host");
        let paths = host.paths(&machine).into_iter();
        paths
            .map(|(_, path)| path.to_string_lossy().replace('\\', "/"))
            .collect()
    }

    const UNIX: &[(&str, &str)] = &[("HOME", "/home/ada")];
    const WINDOWS: &[(&str, &str)] = &[
        ("USERPROFILE", "/users/ada"),
        ("APPDATA", "/users/ada/roaming"),
        ("LOCALAPPDATA", "/users/ada/local"),
    ];

    #[test]
    fn every_host_has_a_file_for_the_user_on_every_system() {
        for host in HOSTS {
            for (system, variables) in [
                (System::Linux, UNIX),
                (System::MacOs, UNIX),
                (System::Windows, WINDOWS),
            ] {
                let paths = paths(host.id, system, variables);
                let is_of_user = |path: &String| path.contains("/ada/");
                assert!(paths.iter().any(is_of_user), "{} {system:?}", host.id);
            }
        }
    }

    #[test]
    fn settings_of_applications_are_in_the_directory_of_the_system() {
        let file = "Claude/claude_desktop_config.json";
        let linux = paths("claude-desktop", System::Linux, UNIX);
        assert_eq!(linux, [format!("/home/ada/.config/{file}")]);
        let macos = paths("claude-desktop", System::MacOs, UNIX);
        assert_eq!(
            macos,
            [format!("/home/ada/Library/Application Support/{file}")]
        );
        let windows = paths("claude-desktop", System::Windows, WINDOWS);
        assert_eq!(windows[0], format!("/users/ada/roaming/{file}"));
        assert_eq!(
            windows[1],
            format!("/users/ada/local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/{file}")
        );
        let zed = |system, variables| paths("zed", system, variables)[0].clone();
        assert_eq!(
            zed(System::Linux, UNIX),
            "/home/ada/.config/zed/settings.json"
        );
        assert_eq!(
            zed(System::MacOs, UNIX),
            "/home/ada/.config/zed/settings.json"
        );
        assert_eq!(
            zed(System::Windows, WINDOWS),
            "/users/ada/roaming/Zed/settings.json"
        );
    }

    #[test]
    fn variables_of_the_hosts_move_their_files() {
        for (id, variable, value, path) in [
            (
                "claude-desktop",
                "XDG_CONFIG_HOME",
                "/xdg",
                "/xdg/Claude/claude_desktop_config.json",
            ),
            ("claude-code", "CLAUDE_CONFIG_DIR", "/c", "/c/.claude.json"),
            ("codex", "CODEX_HOME", "/c", "/c/config.toml"),
            (
                "gemini",
                "GEMINI_CLI_HOME",
                "/g",
                "/g/.gemini/settings.json",
            ),
            (
                "vscode",
                "XDG_CONFIG_HOME",
                "/xdg",
                "/xdg/Code/User/mcp.json",
            ),
            (
                "vscode",
                "VSCODE_PORTABLE",
                "/p",
                "/p/user-data/User/mcp.json",
            ),
            ("zed", "XDG_CONFIG_HOME", "/xdg", "/xdg/zed/settings.json"),
            (
                "zed",
                "FLATPAK_XDG_CONFIG_HOME",
                "/f",
                "/f/zed/settings.json",
            ),
            // An empty variable is not set, and a relative XDG directory is invalid.
            ("codex", "CODEX_HOME", "", "/home/ada/.codex/config.toml"),
            (
                "zed",
                "XDG_CONFIG_HOME",
                "relative",
                "/home/ada/.config/zed/settings.json",
            ),
        ] {
            let variables = [UNIX, &[(variable, value)]].concat();
            assert_eq!(paths(id, System::Linux, &variables)[0], path, "{variable}");
        }
        assert_eq!(paths("windsurf", System::Linux, &[]), [""; 0]);
    }
}
