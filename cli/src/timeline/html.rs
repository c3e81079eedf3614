//! Writes a timeline as one HTML page. Texts of peers are data in it, never markup: they are JSON in an element that is not executed, and the script of
//! the page sets them as text only.

use std::io::{self, Write};

use everlink_tokio::secret;
use serde_json::{Value, json};

use super::Timeline;

/// Writes the page. `about` says what was recorded.
pub(crate) fn write_page(
    out: &mut impl Write,
    timeline: &Timeline,
    about: &Value,
) -> io::Result<()> {
    let nonce: String = secret().iter().map(|byte| format!("{byte:02x}")).collect();
    // Everything but this style and this script is forbidden, also for texts that get past the escaping.
    write!(
        out,
        "{}<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'\">\n<style nonce=\"{nonce}\">\n{}</style>\n{}",
        include_str!("page/head.html"),
        include_str!("page/page.css"),
        include_str!("page/body.html"),
    )?;
    out.write_all(b"<script type=\"application/json\" id=\"data\">")?;
    write_data(out, timeline, about)?;
    write!(
        out,
        "</script>\n<script nonce=\"{nonce}\">\n{}</script>\n</body>\n</html>\n",
        include_str!("page/page.js")
    )
}

/// Writes the timeline as JSON.
fn write_data(out: &mut impl Write, timeline: &Timeline, about: &Value) -> io::Result<()> {
    let calls = timeline.calls.iter().map(|call| {
        let outcome = call.outcome as u8;
        json!([
            call.label, call.from, call.to, call.epoch, outcome, call.text
        ])
    });
    let epochs = timeline.epochs.iter().map(|epoch| {
        let is_failure = u8::from(epoch.is_failure);
        json!([
            epoch.number,
            epoch.from,
            epoch.ready,
            epoch.to,
            is_failure,
            epoch.text
        ])
    });
    let waits = timeline
        .waits
        .iter()
        .map(|wait| json!([wait.from, wait.to, u8::from(wait.is_parked)]));
    let rows = timeline.rows.iter().map(|row| {
        let kind = row.kind as u8;
        let call = row.call.map_or(-1, |call| call as i64);
        json!([row.at, kind, row.label, call, row.epoch, row.len, row.body])
    });
    let mut head = about.clone();
    head["guard"] = json!(timeline.is_guard);
    head["redacted"] = json!(timeline.is_redacted);
    head["short"] = json!(timeline.is_short_of_bodies);
    write!(out, "{{\"about\":{}", escaped(&head))?;
    write_list(out, "calls", calls)?;
    write_list(out, "epochs", epochs)?;
    write_list(out, "waits", waits)?;
    write_list(out, "rows", rows)?;
    out.write_all(b"}")
}

fn write_list(
    out: &mut impl Write,
    name: &str,
    entries: impl Iterator<Item = Value>,
) -> io::Result<()> {
    write!(out, ",\"{name}\":[")?;
    for (index, entry) in entries.enumerate() {
        let comma = if index == 0 { "" } else { ",\n" };
        write!(out, "{comma}{}", escaped(&entry))?;
    }
    out.write_all(b"]")
}

/// JSON without `<`, so that no text can end the element or begin another one.
fn escaped(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Row};
    use super::*;

    #[test]
    fn text_of_a_peer_is_never_markup() {
        let attack = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>";
        let timeline = Timeline {
            rows: vec![Row {
                at: 1,
                kind: Kind::FromServer,
                label: attack.to_owned(),
                call: None,
                epoch: 1,
                len: 1,
                body: Some(attack.to_owned()),
            }],
            ..Timeline::default()
        };
        let mut page = Vec::new();
        write_page(&mut page, &timeline, &json!({"file": attack})).expect("memory");
        let page = String::from_utf8(page).expect("valid UTF-8");
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("<img") && !page.contains("<!--"));
        let (_, data) = page.split_once("id=\"data\">").expect("the data");
        let (data, _) = data.split_once("</script>").expect("its end");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["rows"][0][6], attack);
        assert_eq!(data["about"]["file"], attack);
    }
}
