//! Servers that are protected with OAuth.

use axum::Router;
use axum::http::Request;
use everlink::{Config, Dialect};
use everlink_tokio::http::{
    Access, Connector, Protection, User, protected_router, serve_protected,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{ERAS, run_isolated, server_config, tools};

/// Accepts two tokens. One of them lacks a scope.
async fn verify(token: String) -> Option<Access> {
    match &*token {
        "sesame" => Some(Access::new("Ali Baba", ["read", "write"])),
        "simsim" => Some(Access::new("Cassim", ["read"])),
        _ => None,
    }
}

async fn listen() -> (TcpListener, String, Protection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let url = format!("http://{address}/api/mcp");
    let protection = Protection::new(&url, ["https://login.example.com"], verify);
    let protection = protection.expect("a URL").with_scopes(["read", "write"]);
    (listener, address, protection)
}

/// Sends a request, and returns the whole response.
async fn get(address: &str, path: &str, fields: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("a server");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut response = String::new();
    socket
        .read_to_string(&mut response)
        .await
        .expect("a response");
    response
}

fn body(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn metadata_is_at_both_paths_and_a_challenge_names_it() {
    run_isolated(async || {
        let (listener, address, protection) = listen().await;
        let (_tools, handler) = tools();
        let service = serve_protected(listener, server_config(), protection, handler);
        for path in [
            "/.well-known/oauth-protected-resource/api/mcp",
            "/.well-known/oauth-protected-resource",
        ] {
            let metadata = body(&get(&address, path, "").await);
            assert_eq!(metadata["resource"], format!("http://{address}/api/mcp"));
            assert_eq!(
                metadata["authorization_servers"],
                json!(["https://login.example.com"])
            );
            assert_eq!(metadata["scopes_supported"], json!(["read", "write"]));
        }
        let challenge = format!(
            "www-authenticate: Bearer resource_metadata=\"http://{address}/.well-known/oauth-protected-resource/api/mcp\", scope=\"read write\""
        );
        for (fields, status, error) in [
            ("", "401", ""),
            ("Authorization: Basic sesame\r\n", "401", ""),
            (
                "Authorization: Bearer wrong\r\n",
                "401",
                ", error=\"invalid_token\"",
            ),
            (
                "Authorization: Bearer simsim\r\n",
                "403",
                ", error=\"insufficient_scope\"",
            ),
        ] {
            let response = get(&address, "/api/mcp", fields).await;
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status} ")),
                "{response}"
            );
            assert!(
                response.contains(&format!("{challenge}{error}\r\n")),
                "{response}"
            );
        }
        service.shutdown().await.expect("the service shuts down");
    });
}

#[test]
fn axum_application_passes_the_user_and_refuses_a_wrong_token() {
    run_isolated(async || {
        for era in ERAS {
            let (listener, address, protection) = listen().await;
            let (_tools, handler) = tools();
            let (mcp, metadata, service) = protected_router(server_config(), protection, handler);
            let application = Router::new().nest("/api/mcp", mcp).merge(metadata);
            let (stop_server, server_stopped) = tokio::sync::oneshot::channel::<()>();
            let serving = axum::serve(listener, application)
                .with_graceful_shutdown(async { drop(server_stopped.await) });
            let serving = tokio::spawn(async { serving.await });
            assert_eq!(
                user_seen_by_handler(&address, era, "Bearer sesame")
                    .await
                    .as_deref(),
                Ok("Ali Baba")
            );
            let refused = user_seen_by_handler(&address, era, "Bearer wrong").await;
            assert!(refused.is_err_and(|why| why.contains("no, no")));
            let path = "/.well-known/oauth-protected-resource/api/mcp";
            let metadata = body(&get(&address, path, "").await);
            assert_eq!(metadata["resource"], format!("http://{address}/api/mcp"));
            service.shutdown().await.expect("the service shuts down");
            drop(stop_server);
            serving
                .await
                .expect("the server task ends")
                .expect("the server has no error");
        }
    });
}

/// Calls the tool `who` with this `Authorization` value. Returns the user that the handler saw.
async fn user_seen_by_handler(
    address: &str,
    dialect: Dialect,
    authorization: &str,
) -> Result<String, String> {
    let mut config =
        Config::http("client", "1", &format!("http://{address}/api/mcp")).expect("a URL");
    config.dialect = dialect;
    let value = authorization.to_owned();
    let connector = Connector::new().with_credentials(move || {
        let value = value.clone();
        async { Some(value) }
    });
    let link = connector.connect(config).expect("a runtime");
    let (auth_link, mut events) = (link.clone(), link.events());
    let refuse_sign_in = tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let everlink::client::Event::AuthRequired(_) = &*event {
                auth_link.denied("no, no");
            }
        }
    });
    let answer = link.call_tool("who", json!({})).await;
    link.shutdown().await.expect("the link shuts down");
    drop(link);
    refuse_sign_in.abort();
    answer
        .map(|answer| answer.text())
        .map_err(|error| error.to_string())
}

#[test]
fn fixed_tokens_need_no_authorization_server_and_have_no_metadata() {
    run_isolated(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (_tools, handler) = tools();
        let protection = Protection::fixed(verify);
        assert_eq!(protection.metadata(), None);
        let service = serve_protected(listener, server_config(), protection, handler);
        let path = "/.well-known/oauth-protected-resource";
        for (fields, challenge) in [
            ("", "www-authenticate: bearer\r\n"),
            (
                "Authorization: Bearer wrong\r\n",
                "www-authenticate: bearer error=\"invalid_token\"\r\n",
            ),
        ] {
            let refused = get(&address, path, fields).await;
            assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
            let refused = refused.to_ascii_lowercase();
            assert!(refused.contains(challenge), "{refused}");
        }
        let config = Config::http("test", "1.0", &format!("http://{address}/mcp"));
        let connector =
            Connector::new().with_credentials(async || Some("Bearer sesame".to_owned()));
        let link = connector
            .connect(config.expect("a URL"))
            .expect("a runtime");
        link.ready().await.expect("the token is valid");
        link.shutdown().await.expect("the link shuts down");
        service.shutdown().await.expect("the service shuts down");
    });
}

#[test]
fn metadata_is_json_that_pages_of_all_origins_may_read_and_keep_for_an_hour() {
    run_isolated(async || {
        let (listener, address, protection) = listen().await;
        let (_tools, handler) = tools();
        let service = serve_protected(listener, server_config(), protection, handler);
        let path = "/.well-known/oauth-protected-resource";
        let response = get(&address, path, "").await.to_ascii_lowercase();
        for field in [
            "content-type: application/json",
            "cache-control: max-age=3600",
            "access-control-allow-origin: *",
        ] {
            assert!(response.contains(&format!("\r\n{field}\r\n")), "{response}");
        }
        service.shutdown().await.expect("the service shuts down");
    });
}

#[test]
fn metadata_of_a_server_at_the_root_is_at_one_path() {
    let protection = Protection::new("https://mcp.example/", ["https://a.example"], verify);
    let protection = protection.expect("a URL");
    let path = "/.well-known/oauth-protected-resource";
    assert_eq!(protection.metadata_paths(), Some([path, path]));
    let metadata: Value =
        serde_json::from_str(&protection.metadata().expect("it has some")).expect("JSON");
    assert_eq!(metadata["resource"], "https://mcp.example/");
    assert_eq!(metadata.get("scopes_supported"), None);
}

#[test]
fn request_that_is_let_in_has_its_user_and_no_longer_its_token() {
    run_isolated(async || {
        let protection = Protection::fixed(verify);
        let request = |authorization: &str| {
            let request = Request::builder().header("authorization", authorization);
            request.body(()).expect("a request")
        };
        let admitted = protection.admit(request("bearer  sesame ")).await;
        let admitted = admitted.expect("the token is valid");
        assert_eq!(admitted.headers().get("authorization"), None);
        let user = admitted.extensions().get::<User>();
        assert_eq!(user, Some(&User("Ali Baba".to_owned())));
        for other in ["Bearer", "Bearer ", "Bearer   ", "sesame"] {
            let refused = protection.admit(request(other)).await;
            let refused = refused.expect_err("there is no token");
            assert_eq!(refused.headers()["www-authenticate"], "Bearer", "{other}");
        }
    });
}

/// A browser asks without credentials whether a page may send a request.
#[test]
fn question_of_a_browser_is_let_in_without_a_token() {
    run_isolated(async || {
        let request = Request::builder().method("OPTIONS").body(());
        let protection = Protection::fixed(verify);
        let admitted = protection.admit(request.expect("a request")).await;
        let admitted = admitted.expect("it needs no token");
        assert_eq!(admitted.extensions().get::<User>(), None);
    });
}
