//! The store in which several guards keep the sessions of their hosts. Does not depend on hosts or servers.

use everlink::relay::Config;
use everlink_redis::RedisStore;

use crate::args::Guard;
use crate::{Failure, usage_error};

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
        let keys: Vec<[u8; 16]> = text
            .split(',')
            .map(str::trim)
            .filter(|key| !key.is_empty())
            .map(everlink_redis::secret_from)
            .collect();
        if keys.is_empty() {
            return Err(usage_error(format!(
                "--store needs a key in the environment variable {name}, the same for all guards, such as the output of `openssl rand -hex 16`"
            )));
        }
        let storage = redis.storage();
        let settings = SharedSettings { storage, keys };
        Ok(Some(SessionStore { redis, settings }))
    }

    pub(crate) fn settings(&self) -> SharedSettings {
        self.settings.clone()
    }
}
