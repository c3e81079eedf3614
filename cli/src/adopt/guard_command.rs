//! Recognises `everlink guard` in the words of a command. Does not read files.

/// Where the parts of a guarded command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuardCommand {
    /// The word after `--`: the server's own program. `None` if the guard connects to a URL, or if a shell runs it.
    pub(super) server_at: Option<usize>,
}

/// Options of the guard that set up the server's process. Without the guard, the server would run in another way.
const SERVER_OPTIONS: [&str; 2] = ["--cwd", "--env"];

/// Finds the guard, however it is started: by name, by path, by a runner such as `npx -y everlink guard`, or in the text of a shell command.
/// `None` stands for a word that is no text.
pub(super) fn find(words: &[Option<&str>]) -> Option<GuardCommand> {
    let is_guard = |pair: &[Option<&str>]| matches!(pair, [Some(program), Some("guard")] if is_everlink(program));
    if let Some(program_at) = words.windows(2).position(is_guard) {
        let options_at = program_at + 2;
        let options = &words[options_at..];
        let server = options.iter().position(|word| *word == Some("--"));
        let server_at = server.map(|at| options_at + at + 1);
        return Some(GuardCommand {
            server_at: server_at.filter(|at| *at < words.len()),
        });
    }
    let in_shell = words.iter().flatten().any(|word| {
        let parts: Vec<Option<&str>> = word.split_whitespace().map(Some).collect();
        parts.windows(2).any(is_guard)
    });
    in_shell.then_some(GuardCommand { server_at: None })
}

/// The options of a guard that its server needs.
pub(super) fn server_options(words: &[Option<&str>]) -> Vec<&'static str> {
    let options = words.iter().take_while(|word| **word != Some("--"));
    let is_given = |name: &&'static str| {
        options.clone().flatten().any(|word| {
            word.strip_prefix(*name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    SERVER_OPTIONS
        .into_iter()
        .filter(|name| is_given(name))
        .collect()
}

/// Whether a word names this program: `everlink`, a path of it, or a package with a version. A suffix may tell variants apart: `everlink-0.1`.
pub(super) fn is_everlink(word: &str) -> bool {
    let name = word.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let suffix = name.strip_prefix("everlink");
    suffix.is_some_and(|suffix| {
        suffix.is_empty() || suffix.starts_with(['.', '-', '_', '@', '=', ':'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_of(line: &str) -> Option<Option<usize>> {
        let words: Vec<Option<&str>> = line.split(' ').map(Some).collect();
        find(&words).map(|guard| guard.server_at)
    }

    #[test]
    fn guard_is_found_however_it_is_started() {
        for (line, server_at) in [
            ("everlink guard -- npx -y x", 3),
            ("/usr/local/bin/everlink guard -- x", 3),
            (r"C:\tools\Everlink.EXE guard -- x", 3),
            ("everlink guard --drain 5 --log json -- x --", 7),
            ("npx -y everlink guard -- npx -y x", 5),
            ("npx -y @somebody/everlink@0.1.0 guard -- x", 5),
            ("uvx everlink guard -- x", 4),
            ("/opt/everlink-0.1_x86-64 guard -- x", 3),
            ("uvx --from everlink==0.1.0 everlink guard -- x", 6),
            ("cmd /c everlink guard -- x", 5),
            ("docker run -i ghcr.io/e/everlink:latest guard -- x", 6),
        ] {
            assert_eq!(server_of(line), Some(Some(server_at)), "{line}");
        }
        for line in [
            "everlink guard --url https://x.example/",
            "everlink guard",
            "everlink guard --",
        ] {
            assert_eq!(server_of(line), Some(None), "{line}");
        }
        let shell = [Some("sh"), Some("-c"), Some("exec everlink guard -- x")];
        assert_eq!(find(&shell).map(|guard| guard.server_at), Some(None));
    }

    #[test]
    fn other_commands_are_no_guards() {
        for line in [
            "npx -y x",
            "everlink demo-server",
            "everlink",
            "guard",
            "neverlink guard -- x",
            "everlinked guard -- x",
            "x --name everlink -- guard",
        ] {
            assert_eq!(server_of(line), None, "{line}");
        }
        assert_eq!(find(&[None, Some("guard")]), None);
    }

    #[test]
    fn options_that_the_server_needs_are_found_before_its_command() {
        let words = |line: &'static str| line.split(' ').map(Some).collect::<Vec<_>>();
        let needs = |line| server_options(&words(line));
        assert_eq!(
            needs("everlink guard --cwd /x --env=A=1 -- x"),
            ["--cwd", "--env"]
        );
        assert!(needs("everlink guard --drain 1 -- x --cwd /x").is_empty());
    }
}
