//! Tests of valid messages, and of every kind of malformed one.

use alloc::{borrow::Cow, format, string::ToString, vec::Vec};

use crate::json::Json;

use super::{BATCH_LIMIT, ErrorObject, Inbound, Malformed, MalformedKind as Kind, Message, parse};
use crate::json::Payload;
use crate::wire::Id;

fn one(text: &str) -> Message<'_> {
    let Ok(Inbound::One(message)) = parse(text) else {
        panic!("not one message: {text}");
    };
    message
}

fn response(text: &str) -> (Option<Id>, Result<Json<'_>, ErrorObject>) {
    let Message::Response { id, outcome } = one(text) else {
        panic!("not a response: {text}");
    };
    (id, outcome)
}

fn error_of(text: &str) -> ErrorObject {
    response(text).1.unwrap_err()
}

#[test]
fn members_are_read_in_any_order_and_unknown_ones_are_ignored() {
    let text = " {\"params\" : {\"a\":1}, \"x\":[null], \"method\":\"a/b\", \"id\":\"1\",\"jsonrpc\":\"2.0\"}\t";
    let Message::Request { id, method, params } = one(text) else {
        panic!("not a request");
    };
    assert_eq!(id, Id::Text("1".into()));
    assert!(matches!(method, Cow::Borrowed("a/b")));
    assert_eq!(params.map(Json::as_str), Some("{\"a\":1}"));

    let text = r#"{"jsonrpc":"\u0032.0","m\u0065thod":"a\/b"}"#;
    let Message::Notification { method, params } = one(text) else {
        panic!("not a notification");
    };
    assert_eq!(method, "a/b");
    assert!(params.is_none());
}

#[test]
fn null_result_or_error_beside_the_other_counts_as_absent() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":null}}"#,
        r#"{"error":null,"jsonrpc":"2.0","id":1.0,"result":{"a":null}}"#,
    ] {
        let (id, outcome) = response(text);
        assert_eq!(id, Some(Id::Number(1)));
        assert_eq!(outcome.unwrap().as_str(), r#"{"a":null}"#);
    }
    let (id, outcome) =
        response(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}"#);
    assert_eq!(id, Some(Id::Number(1)));
    assert_eq!(outcome.unwrap_err(), ErrorObject::new(1, "m"));
}

#[test]
fn null_params_are_none() {
    let Message::Notification { params, .. } =
        one(r#"{"jsonrpc":"2.0","method":"m","params":null}"#)
    else {
        panic!("a notification");
    };
    assert!(params.is_none());
}

#[test]
fn an_error_may_come_without_an_id() {
    for text in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#,
    ] {
        let (id, outcome) = response(text);
        assert_eq!(id, None);
        assert_eq!(outcome.unwrap_err(), ErrorObject::new(1, "m"));
    }
}

#[test]
fn error_shows_its_message_and_code_and_debug_hides_its_data() {
    let error = error_of(
        r#"{"jsonrpc":"2.0","id":1,"error":{"data":["hunter2"],"message":"Not f\u006fund","code":-32601.0}}"#,
    );
    assert_eq!(error.to_string(), "Not found (code -32601)");
    assert_eq!(
        error.data.as_ref().map(Payload::as_str),
        Some("[\"hunter2\"]")
    );
    assert!(!format!("{error:?}").contains("hunter2"));
    assert_eq!(
        serde_json::to_string(&error).unwrap(),
        r#"{"code":-32601,"message":"Not found","data":["hunter2"]}"#
    );
}

#[test]
fn errors_without_a_message_get_a_default_text() {
    for members in [
        r#""code":5"#,
        r#""code":5,"message":"""#,
        r#""code":5,"message":null"#,
        r#""message":"\ud800","code":5"#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{{members}}}}}"#);
        let error = error_of(&text);
        assert_eq!(error.to_string(), "no message was given (code 5)");
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"code":5,"message":"no message was given"}"#
        );
    }
    let built = ErrorObject {
        message: "".into(),
        ..ErrorObject::new(7, "x")
    };
    assert_eq!(built.to_string(), "no message was given (code 7)");
}

#[test]
fn debug_shows_no_payload() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"t":"hunter2"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":"hunter2"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"hunter2"}}"#,
        r#"{"jsonrpc":"2.0","method":"m","params":{"t":"hunter2"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"result":{"t":"hunter2"}}]"#,
    ] {
        let shown = format!("{:?}", parse(text).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn every_kind_of_malformed_message_is_reported() {
    const SEVEN: Option<i64> = Some(7);
    #[rustfmt::skip]
    const TABLE: &[(&str, Kind, Option<i64>, bool)] = &[
        ("", Kind::NotJson, None, false),
        ("Server listening on port 80", Kind::NotJson, None, false),
        ("{", Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}"#, Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}},"#, Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}{}"#, Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":07,"result":{}}"#, Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":,"result":{}}"#, Kind::NotJson, None, false),
        ("{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"b\u{1}c\",\"d\":\"long enough\"}}", Kind::NotJson, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#, Kind::NotJson, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}"#, Kind::NotJson, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":NaN}}"#, Kind::NotJson, None, false),
        ("[{]", Kind::NotJson, None, false),
        ("[1] 2", Kind::NotJson, None, false),
        ("\u{FEFF}{}", Kind::NotJson, None, false),
        ("\u{C}{}", Kind::NotJson, None, false),
        ("42", Kind::NotAnObject, None, false),
        ("\"{}\"", Kind::NotAnObject, None, false),
        (" null ", Kind::NotAnObject, None, false),
        ("[]", Kind::EmptyBatch, None, false),
        ("{}", Kind::BadVersion, None, false),
        (r#"{"id":7,"result":{}}"#, Kind::BadVersion, SEVEN, true),
        (r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#, Kind::BadVersion, SEVEN, false),
        (r#"{"jsonrpc":"1.0","id":7,"error":{"code":1}}"#, Kind::BadVersion, SEVEN, true),
        (r#"{"jsonrpc":"2.0"}"#, Kind::NoMessage, None, false),
        (r#"{"jsonrpc":"2.0","id":7}"#, Kind::NoMessage, SEVEN, false),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#, Kind::ResultAndError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":null,"error":null}"#, Kind::BadResult, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, Kind::BadResult, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":[]}"#, Kind::BadResult, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":"{}"}"#, Kind::BadResult, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"error":null}"#, Kind::BadError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"error":"no"}"#, Kind::BadError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"error":{"message":"m"}}"#, Kind::BadError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":"m"}}"#, Kind::BadError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"error":{"code":1.5,"message":"m"}}"#, Kind::BadError, SEVEN, true),
        (r#"{"jsonrpc":"2.0","result":{}}"#, Kind::MissingId, None, true),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, Kind::MissingId, None, true),
        (r#"{"jsonrpc":"2.0","id":true,"result":{}}"#, Kind::BadId, None, true),
        (r#"{"jsonrpc":"2.0","id":1.5,"error":{"code":1}}"#, Kind::BadId, None, true),
        (r#"{"jsonrpc":"2.0","id":[7],"method":"m"}"#, Kind::BadId, None, false),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#, Kind::BadId, None, false),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, Kind::NullId, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":null}"#, Kind::BadMethod, SEVEN, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"\ud800"}"#, Kind::BadMethod, SEVEN, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"\udc00\ud800x"}"#, Kind::BadMethod, SEVEN, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[1]}"#, Kind::BadParams, SEVEN, false),
        (r#"{"jsonrpc":"2.0","method":"m","params":7}"#, Kind::BadParams, None, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","result":{}}"#, Kind::RequestAndResponse, SEVEN, false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"m"}"#, Kind::DuplicateMember, SEVEN, false),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"result":{}}"#, Kind::DuplicateMember, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"r\u0065sult":{}}"#, Kind::DuplicateMember, SEVEN, true),
        (r#"{"jsonrpc":"2.0","id":7,"id":7,"id":7,"result":{}}"#, Kind::DuplicateMember, None, true),
    ];
    for &(text, kind, id, is_response) in TABLE {
        let expected = Malformed {
            kind,
            id: id.map(Id::Number),
            is_response,
            is_notification: text.contains("\"method\"") && !text.contains("\"id\""),
        };
        assert_eq!(expected.to_string(), kind.to_string());
        assert_eq!(parse(text).map(drop), Err(expected), "{text}");
        assert_eq!(kind.code() == -32_700, kind == Kind::NotJson);
    }
}

#[test]
fn unknown_members_may_hold_invalid_unicode() {
    let text = r#"{"jsonrpc":"2.0","\ud800":"\udfff","method":"m"}"#;
    assert!(matches!(one(text), Message::Notification { .. }));
}

#[test]
fn batches_are_read_element_by_element() {
    let text = r#" [ {"jsonrpc":"2.0","id":1,"result":{}} , 5, [], {"jsonrpc":"2.0","method":"m"},{"id":7} ] "#;
    let Ok(Inbound::Batch(batch)) = parse(text) else {
        panic!("not a batch");
    };
    assert_eq!(batch.len(), 5);
    let read: Vec<_> = batch.collect();
    assert!(matches!(read[0], Ok(Message::Response { .. })));
    assert_eq!(read[1].as_ref().unwrap_err().kind, Kind::NotAnObject);
    assert_eq!(read[2].as_ref().unwrap_err().kind, Kind::NotAnObject);
    assert!(matches!(read[3], Ok(Message::Notification { .. })));
    assert_eq!(read[4].as_ref().unwrap_err().kind, Kind::BadVersion);
    assert_eq!(read[4].as_ref().unwrap_err().id, Some(Id::Number(7)));
}

#[test]
fn batches_are_bounded() {
    let full = format!("[{}0]", "0,".repeat(BATCH_LIMIT - 1));
    assert!(matches!(parse(&full), Ok(Inbound::Batch(batch)) if batch.len() == BATCH_LIMIT));
    let over = format!("[{}0]", "0,".repeat(BATCH_LIMIT));
    assert_eq!(parse(&over).map(drop), Err(Kind::BatchTooLong.into()));
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn deep_nesting_does_not_exhaust_the_stack() {
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let text = format!(r#"{{"x":{nested},"jsonrpc":"2.0","id":1,"result":{{"deep":{nested}}}}}"#);
    let result = response(&text).1.unwrap();
    assert_eq!(result.as_str().len(), nested.len() + r#"{"deep":}"#.len());
    assert!(matches!(parse(&nested), Ok(Inbound::Batch(_))));
    assert_eq!(
        parse(&nested[..300_000]).map(drop),
        Err(Kind::NotJson.into())
    );
}
