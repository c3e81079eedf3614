//! The store in which several guards keep the sessions of their hosts. Does not depend on hosts or servers.

use everlink::relay::Config;
use everlink_redis::RedisStore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::log::LogLine;
use crate::args::Guard;
use crate::{Failure, usage_error};

/// The minimum number of characters of a key. All guards with the key accept what it signs, so it must be hard to guess.
const MIN_KEY_CHARS: usize = 16;

/// A store of sessions, and the keys that all guards with the same store share.
pub(crate) struct SessionStore {
    pub(crate) redis: RedisStore,
    settings: SharedSettings,
}

/// The settings of a guard that shares its sessions with others.
#[derive(Clone)]
pub(crate) struct SharedSettings {
    storage: everlink::server::DriverStorage,
    keys: Vec<[u8; 16]>,
}

impl SharedSettings {
    /// Applies the settings to the configuration of the relay.
    pub(crate) fn apply(&self, config: &mut Config) {
        let Some((key, accepted)) = self.keys.split_first() else {
            return;
        };
        config.downstream.secret = *key;
        config.downstream.accepted_secrets = accepted.to_vec();
        if let Some(http) = config.downstream.http.take() {
            config.downstream.http = Some(http.with_storage(self.storage));
        }
    }
}

impl SessionStore {
    /// Prepares the store that the arguments name, if they name one.
    pub(crate) fn of(args: &Guard) -> Result<Option<SessionStore>, Failure> {
        let Some(url) = &args.store else {
            return Ok(None);
        };
        if args.target.record_options.record.is_some() {
            let text = "--store and --record exclude each other: a recording does not hold what other guards did";
            return Err(usage_error(text));
        }
        let redis = RedisStore::new(url);
        // The text of the error may hold the password in the URL.
        let redis = redis.map_err(|_| {
            usage_error("--store: this is no address such as redis://127.0.0.1:6379".to_owned())
        })?;
        let name = &args.store_key_env;
        let text = std::env::var(name).unwrap_or_default();
        let keys = parse_keys(&text).map_err(|problem| {
            usage_error(format!(
                "--store: the environment variable {name} {problem}; set it to the output of `openssl rand -hex 16`, the same for all guards"
            ))
        })?;
        let storage = redis.storage();
        let settings = SharedSettings { storage, keys };
        Ok(Some(SessionStore { redis, settings }))
    }

    pub(crate) fn settings(&self) -> SharedSettings {
        self.settings.clone()
    }
}

/// Reads the keys of all guards, separated by commas.
fn parse_keys(text: &str) -> Result<Vec<[u8; 16]>, String> {
    let keys = text.split(',').map(str::trim);
    let keys: Vec<&str> = keys.filter(|key| !key.is_empty()).collect();
    if keys.is_empty() {
        return Err("holds no key".to_owned());
    }
    if keys.iter().any(|key| key.chars().count() < MIN_KEY_CHARS) {
        return Err(format!(
            "holds a key that is too short; the minimum is {MIN_KEY_CHARS} characters"
        ));
    }
    let keys = keys.into_iter().map(everlink_redis::secret_from);
    Ok(keys.collect())
}

/// Logs when the store stops to answer, and when it answers again, until the store has ended.
pub(super) async fn log_outages(
    address: String,
    mut problem: watch::Receiver<Option<String>>,
    remarks: UnboundedSender<LogLine>,
) {
    let mut was_away = false;
    while problem.changed().await.is_ok() {
        let why = problem.borrow_and_update().clone();
        let is_away = why.is_some();
        // Further attempts fail, too, perhaps with another reason. The first one is enough.
        if std::mem::replace(&mut was_away, is_away) == is_away {
            continue;
        }
        let remark = match why {
            Some(why) => LogLine::Warning(format!(
                "--store: Redis at {address} does not answer: {why}; sessions of this guard go on for a few seconds, then requests get HTTP status 503 until it answers; the guard keeps trying"
            )),
            None => LogLine::Info(format!("--store: Redis at {address} answers again")),
        };
        let _ = remarks.send(remark);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn key_of_fewer_than_16_characters_is_refused() {
        let key = "0123456789abcdef";
        assert_eq!(parse_keys(key).map(|keys| keys.len()), Ok(1));
        let two = format!(" {key},{key}2, ");
        assert_eq!(parse_keys(&two).map(|keys| keys.len()), Ok(2));
        for text in ["", " , ", "x", &key[1..], &format!("{key},x")] {
            assert!(parse_keys(text).is_err(), "{text:?}");
        }
    }

    #[tokio::test]
    async fn outage_is_logged_once_when_it_begins_and_once_when_it_ends() {
        let (sender, problem) = watch::channel(None);
        let (remark, mut remarks) = unbounded_channel();
        let logging = tokio::spawn(log_outages("redis:1".to_owned(), problem, remark));
        let mut seen = Vec::new();
        for change in [Some("refused"), Some("refused"), Some("timed out"), None] {
            sender.send_replace(change.map(str::to_owned));
            // Lets the task see each change.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            seen.extend(std::iter::from_fn(|| remarks.try_recv().ok()));
        }
        drop(sender);
        logging.await.expect("it ends with the store");
        let [LogLine::Warning(begin), LogLine::Info(end)] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert!(begin.contains("redis:1 does not answer: refused"));
        assert!(end.contains("redis:1 answers again"));
    }
}
