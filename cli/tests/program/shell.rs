//! Tests help, completions, the manual page, and the errors for arguments that make no sense.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{SERVER, TempFile, Terminal, program, run_everlink, text};

/// All commands that the help shows.
const COMMANDS: [&str; 14] = [
    "adopt",
    "call",
    "complete",
    "completions",
    "demo",
    "demo-server",
    "guard",
    "inspect",
    "man",
    "prompt",
    "read",
    "replay",
    "top",
    "watch",
];

#[test]
fn every_command_has_help_with_examples() {
    let top = text(&run_everlink(&["--help"], &[]).stdout);
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{command}: {top}");
        for flag in ["-h", "--help"] {
            let output = run_everlink(&[command, flag], &[]);
            let help = text(&output.stdout);
            assert!(output.status.success(), "{command} {flag}");
            let (_, examples) = help.split_once("\nExamples:\n").expect(command);
            assert!(
                examples.contains(&format!("  everlink {command}")),
                "{help}"
            );
        }
    }
}

#[test]
fn completions_for_every_shell_contain_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run_everlink(&["completions", shell], &[]);
        let script = text(&output.stdout);
        assert!(output.status.success(), "{shell}");
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        if shell == "bash" {
            let temp_file = TempFile::new("completions.bash");
            fs::write(&temp_file.0, &script).expect("the file can be written");
            let checked = Command::new("bash").arg("-n").arg(&temp_file.0).output();
            let checked = checked.expect("bash is installed");
            assert!(checked.status.success(), "{}", text(&checked.stderr));
        }
    }
}

#[test]
fn manual_page_has_a_section_for_each_command() {
    let output = run_everlink(&["man"], &[]);
    let page = text(&output.stdout);
    assert!(output.status.success());
    assert!(page.contains("\n.TH everlink 1 "), "{page}");
    let sections: Vec<&str> = page.split("\n.SH ").collect();
    for command in COMMANDS {
        let title = format!("\"EVERLINK {}\"\n", command.to_uppercase());
        let section = sections.iter().find(|section| section.starts_with(&title));
        let section = section.unwrap_or_else(|| panic!("{command} is not in it"));
        assert!(section.contains(".SS SYNOPSIS\n"), "{section}");
        assert!(section.contains(".SS EXAMPLES\n"), "{section}");
        if command == "guard" {
            for option in ["listen", "status", "retries", "bearer\\-env", "cwd"] {
                assert!(section.contains(&format!("\\-\\-{option}\\f")), "{section}");
            }
        }
    }
}

#[test]
fn invalid_arguments_exit_with_status_2_and_a_hint() {
    let cases: [(&[&str], &[&str], &str); 27] = [
        (&["guard"], &[], "`-- COMMAND ARGUMENTS...`"),
        (&["call", "echo"], &[], "`--url URL`"),
        (&["guard", "npx", "-y", "it"], &[], "after `--`"),
        (&["watch", "--urk", "x"], &[], "'--url'"),
        (&["inspect", "--url", "http://x"], &SERVER, "cannot be used"),
        (&["inspect", "--url", "ftp://x/"], &[], "http://"),
        // An option for the other kind of server is an error, and is not ignored.
        (&["watch", "--header", "X-Key: 1"], &SERVER, "'--header"),
        (&["watch", "--bearer-env", "PATH"], &SERVER, "'--bearer-env"),
        (&["watch", "--header-env", "PATH"], &SERVER, "'--header-env"),
        (&["watch", "--cwd", "/", "--url", "http://x"], &[], "'--cwd"),
        (
            &["watch", "--env", "A=1", "--url", "http://x"],
            &[],
            "'--env",
        ),
        (&["call", "echo", "[1]"], &SERVER, "not a JSON object"),
        (&["complete", "review", "isbn"], &SERVER, "NAME=TEXT"),
        (&["complete", "review", "isbn="], &[], "`--url URL`"),
        (
            &["call", "echo", "--timeout", "-1"],
            &SERVER,
            "less than 0 seconds",
        ),
        (
            &["call", "echo", "--total-timeout", "0"],
            &SERVER,
            "more than 0 seconds",
        ),
        (
            &["call", "echo", "--keepalive", "soon"],
            &SERVER,
            "not a number of seconds",
        ),
        (
            &["inspect", "--header", "x", "--url", "http://x/"],
            &[],
            "Name: value",
        ),
        (
            &["inspect", "--bearer-env", "NO_SUCH", "--url", "http://x/"],
            &[],
            "NO_SUCH",
        ),
        (
            &["inspect", "--header-env", "NO_SUCH", "--url", "http://x/"],
            &[],
            "--header-env: the environment variable NO_SUCH is not set",
        ),
        (
            // `program` sets this variable to a path, which has no colon.
            &[
                "inspect",
                "--header-env",
                "XDG_CACHE_HOME",
                "--url",
                "http://x/",
            ],
            &[],
            "--header-env XDG_CACHE_HOME: write it as \"Name: value\"",
        ),
        (
            &["login", "foo"],
            &[],
            "not the URL of a server, such as https://example.com/mcp",
        ),
        (&["guard"], &[""], "the command after `--` is empty"),
        (&["guard", "--ulr", "x"], &SERVER, "'--url'"),
        (
            &[
                "login",
                "--client-credentials",
                "--client-id",
                "x",
                "http://127.0.0.1:1/",
            ],
            &[],
            "--client-secret-env VARIABLE",
        ),
        (
            &["demo", "--seconds", "nan"],
            &[],
            "not a whole number of seconds",
        ),
        (
            &["guard", "--status", "localhost:1"],
            &SERVER,
            "127.0.0.1:9090",
        ),
    ];
    for (arguments, server, hint) in cases {
        let output = run_everlink(arguments, server);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn closed_stdout_ends_a_command_with_status_0_and_no_message() {
    let commands: [&[&str]; 5] = [
        &["man"],
        &["completions", "zsh"],
        &["inspect"],
        &["call", "pid"],
        &["watch"],
    ];
    for arguments in commands {
        let mut command = program();
        command.args(arguments);
        if matches!(arguments[0], "inspect" | "call" | "watch") {
            command.arg("--").args(SERVER);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the program starts");
        drop(process.stdout.take());
        let output = process.wait_with_output().expect("the program ends");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert_eq!(stderr, "", "{arguments:?}");
    }
}

#[test]
fn terminal_output_is_coloured_unless_no_color_is_set() {
    for (variable, is_coloured) in [("", true), ("1", false)] {
        let mut command = program();
        command
            .args(["demo", "--seconds", "0"])
            // A dumb terminal gets lines instead of a table.
            .env("TERM", "dumb")
            .env("NO_COLOR", variable);
        let (screen, output) = Terminal::start(&mut command).end();
        assert!(output.status.success(), "{screen}");
        assert_eq!(screen.contains("\x1b[32m"), is_coloured, "{screen}");
        assert!(screen.contains("is ready"), "{screen}");
        assert!(!text(&output.stdout).contains('\x1b'));
    }
}
