//! The settings of an authorizer under test.

use everlink::auth::{
    ClientAuthentication, Config, Endpoints, Grant, IdentityProvider, KnownClient, Secret,
};

use super::rig::{ISSUER, url};
use crate::script::Script;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) grant: Grant,
    pub(super) dpop: bool,
    pub(super) known: Option<ClientAuthentication>,
    pub(super) fixed_endpoints: bool,
    /// Whether nobody signs in by themselves.
    pub(super) waits_for_redirect: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            grant: Grant::AuthorizationCode,
            dpop: false,
            known: None,
            fixed_endpoints: false,
            waits_for_redirect: false,
        }
    }
}

impl Setup {
    pub(super) fn read(script: &mut Script<'_>) -> Setup {
        let grant = match script.byte() % 8 {
            0 => Grant::ClientCredentials,
            1 => Grant::DeviceCode,
            2 => Grant::WorkloadIdentity,
            3 => Grant::EnterpriseManaged(Box::new(IdentityProvider {
                token_endpoint: url("https://idp.example/token"),
                client_id: "idp-client".into(),
                client_secret: Some(Secret::new("SECRET-i")),
            })),
            _ => Grant::AuthorizationCode,
        };
        let flags = script.byte();
        let known = match flags >> 1 & 7 {
            1 => Some(ClientAuthentication::Basic),
            2 => Some(ClientAuthentication::Post),
            3 => Some(ClientAuthentication::PrivateKeyJwt),
            _ => None,
        };
        Setup {
            grant,
            dpop: flags & 1 == 1,
            known,
            fixed_endpoints: flags & 16 == 16,
            waits_for_redirect: true,
        }
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::new(url("https://mcp.example/mcp"), "model");
        config.grant = self.grant.clone();
        config.dpop = self.dpop;
        config.client.known = self.known.map(|method| KnownClient {
            id: "known".into(),
            secret: Some(Secret::new("SECRET-k")),
            method: Some(method),
            issuer: None,
        });
        config.endpoints = self.fixed_endpoints.then(|| {
            Box::new(Endpoints {
                issuer: Some(ISSUER.into()),
                authorization: Some(url("https://as.example/authorize")),
                token: url("https://as.example/token"),
                device: Some(url("https://as.example/device")),
                revocation: None,
            })
        });
        config
    }
}
