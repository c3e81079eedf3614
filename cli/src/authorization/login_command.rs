//! Makes the command that signs in with the options of another command. Does not depend on the sign-in.

use std::path::{self, Path, PathBuf};

use super::options::{AuthOptions, CALLBACK};

impl AuthOptions {
    /// Returns the command that signs in at the server, with the options that were given. Secrets are not among them: options name the variable or the
    /// file that holds one. Leaves out `--oauth`, because the command signs in only if that is not `off`.
    pub(crate) fn login_command(&self, server: &str) -> String {
        let mut command = format!("everlink login {}", quoted(server));
        for (option, is_given) in self.flags() {
            if is_given {
                command.push_str(&format!(" {option}"));
            }
        }
        for (option, value) in self.values() {
            if let Some(value) = value {
                command.push_str(&with_value(option, &value));
            }
        }
        for parameter in &self.authorize_param {
            command.push_str(&with_value("--authorize-param", parameter));
        }
        command
    }

    /// Returns the options without a value, and whether each was given.
    fn flags(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("--device", self.device),
            ("--paste", self.paste),
            ("--no-browser", self.no_browser),
            #[cfg(feature = "keychain")]
            ("--keychain", self.keychain),
            ("--client-credentials", self.client_credentials),
            ("--no-resource", self.no_resource),
            ("--use-id-token", self.use_id_token),
            ("--dpop", self.dpop),
            ("--allow-http", self.allow_http),
            ("--allow-other-issuer", self.allow_other_issuer),
            ("--follow-sign-in", self.follow_sign_in),
        ]
    }

    /// Returns the options that have at most one value, and that value if it was given.
    fn values(&self) -> Vec<(&'static str, Option<String>)> {
        let given = |value: &String, default: &str| (value != default).then(|| value.clone());
        let timeout = self.auth_timeout.map(|it| it.as_secs_f64().to_string());
        let port = self.callback_port.map(|port| port.to_string());
        vec![
            ("--account", given(&self.account, "")),
            ("--auth-timeout", timeout),
            ("--auth-directory", shown(self.auth_directory.as_ref())),
            ("--scope", self.scope.clone()),
            ("--client-id", self.client_id.clone()),
            ("--client-secret-env", self.client_secret_env.clone()),
            ("--client-metadata-url", self.client_metadata_url.clone()),
            ("--client-metadata", self.client_metadata.clone()),
            ("--private-key", shown(self.private_key.as_ref())),
            ("--workload-token", shown(self.workload_token.as_ref())),
            ("--idp-token-endpoint", self.idp_token_endpoint.clone()),
            ("--idp-client-id", self.idp_client_id.clone()),
            (
                "--idp-client-secret-env",
                self.idp_client_secret_env.clone(),
            ),
            ("--id-token", shown(self.id_token.as_ref())),
            ("--resource", self.resource.clone()),
            ("--callback-host", given(&self.callback_host, CALLBACK.0)),
            ("--callback-port", port),
            ("--callback-path", given(&self.callback_path, CALLBACK.1)),
            ("--auth-success-url", self.auth_success_url.clone()),
            ("--token-endpoint", self.token_endpoint.clone()),
            (
                "--authorization-endpoint",
                self.authorization_endpoint.clone(),
            ),
            ("--issuer", self.issuer.clone()),
        ]
    }
}

/// Returns the path as an absolute one: the person may run the command in another directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn shown(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| absolute(path).display().to_string())
}

/// Returns an option with its value, for a shell. A value that begins with a hyphen would be read as an option.
fn with_value(option: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" {option}{between}{}", quoted(value))
}

/// Returns the word as a shell reads it: in quotes if it has characters that shells treat specially.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || "-_./:=@%+,".contains(it);
    match word
        .chars()
        .all(|it| is_plain(it) || (cfg!(windows) && it == '\\'))
    {
        true if !word.is_empty() => word.to_owned(),
        _ if cfg!(windows) => format!("\"{}\"", word.replace('"', "\\\"")),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        auth: AuthOptions,
    }

    fn parsed(words: &[&str]) -> AuthOptions {
        let words = [&["x"], words].concat();
        Options::try_parse_from(words).expect("options").auth
    }

    #[test]
    fn login_command_has_the_options_that_were_given_and_quotes_them() {
        let server = "https://a.example/mcp?x=1&y=2";
        for (options, command) in [
            (&[][..], ""),
            (
                &["--scope", "x y", "--account", "at work"],
                " --account 'at work' --scope 'x y'",
            ),
            (&["--client-id", "it's"], r" --client-id 'it'\''s'"),
            (&["--client-id=-a"], " --client-id=-a"),
            (&["--auth-directory", "/a/b"], " --auth-directory /a/b"),
            (
                &["--authorize-param", "a=1", "--authorize-param", "b=2 3"],
                " --authorize-param a=1 --authorize-param 'b=2 3'",
            ),
            (
                &["--oauth", "off", "--auth-timeout", "0.5"],
                " --auth-timeout 0.5",
            ),
        ] {
            let expected = format!("everlink login '{server}'{command}");
            assert_eq!(parsed(options).login_command(server), expected);
        }
    }

    /// Each option but `--oauth`, with which `everlink login` does the same without it.
    #[test]
    fn login_command_is_read_as_the_options_that_it_was_made_from() {
        let mut tested = BTreeSet::from(["--oauth".to_owned()]);
        for options in [
            "--device --account a --auth-timeout 5 --auth-directory /a --scope b --client-metadata-url https://a/b",
            "--paste --client-id a --client-secret-env B --callback-host localhost --callback-port 5 --callback-path /b",
            "--no-browser --client-metadata {} --auth-success-url https://a/b --authorize-param a=b",
            "--client-credentials --client-id a --private-key /a/key.pem --resource https://a/b",
            "--workload-token /a/token --no-resource --use-id-token --dpop --allow-http",
            "--idp-token-endpoint https://a/b --idp-client-id a --idp-client-secret-env A --id-token /a/token",
            "--token-endpoint https://a/b --authorization-endpoint https://a/c --issuer https://a",
            "--allow-other-issuer --follow-sign-in",
            #[cfg(feature = "keychain")]
            "--keychain",
        ] {
            let words: Vec<&str> = options.split(' ').collect();
            let given = parsed(&words);
            let command = given.login_command("https://a.example/mcp");
            let command = command.replace('\'', "");
            let words = command.split(' ').skip(3).collect::<Vec<_>>();
            assert_eq!(format!("{:?}", parsed(&words)), format!("{given:?}"));
            tested.extend(words.iter().map(|word| (*word).to_owned()));
        }
        for option in Options::command().get_arguments() {
            let name = format!("--{}", option.get_long().expect("no position"));
            assert!(tested.contains(&name), "{name}");
        }
    }

    /// The person may run the command in another directory.
    #[test]
    fn login_command_has_absolute_paths() {
        for (option, more) in [
            ("--auth-directory", &[][..]),
            ("--private-key", &["--client-id", "a"]),
            ("--workload-token", &[]),
        ] {
            let options = [&[option, "a.pem"], more].concat();
            let path = std::env::current_dir().expect("a directory").join("a.pem");
            let expected = format!("{option} {}", path.display());
            let command = parsed(&options).login_command("https://a.example/mcp");
            assert!(command.contains(&expected), "{command}");
        }
    }
}
