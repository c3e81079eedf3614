//! What processes send to an authorization server: no secret to another one, no refresh token twice, and not too much.

use super::{EXCHANGES, EXCHANGES_PER_CHALLENGE, Oracle, When, broken};
use crate::fact::Pid;
use crate::mark::{Kind, Mark};
use crate::rule::Rule;

impl Oracle {
    pub(super) fn sent(&mut self, when: When, pid: Pid, url: &str, text: &str) {
        for kind in Kind::ALL {
            let Some(mark) = Mark::find(text, kind).or(Mark::find(url, kind)) else {
                continue;
            };
            let origin = format!("https://as{}.example", mark.issuer);
            let is_home = match kind {
                Kind::Access => url == format!("{origin}/revoke"),
                Kind::Refresh => {
                    url == format!("{origin}/token") || url == format!("{origin}/revoke")
                }
                Kind::Code => url == format!("{origin}/token"),
                Kind::Verifier => {
                    let code = Mark::find(text, Kind::Code).unwrap_or_default();
                    url == format!("https://as{}.example/token", code.issuer)
                }
            };
            if !is_home {
                broken(
                    Rule::SecretsStayHome,
                    format!("{pid} sent {kind:?} {mark:?} to {url}"),
                );
            }
        }
        if let Some(mark) = Mark::find(text, Kind::Refresh) {
            self.spent(pid, url, mark);
        }
        let process = &mut self.processes[pid];
        let hour = when.mono / 3_600_000;
        if process.hour.0 != hour {
            process.hour = (hour, 0, 0);
        }
        process.hour.1 += 1;
        let (_, exchanges, challenges) = process.hour;
        if exchanges > EXCHANGES + EXCHANGES_PER_CHALLENGE * challenges {
            broken(
                Rule::NoHotLoop,
                format!("{pid} began {exchanges} exchanges within an hour"),
            );
        }
    }

    fn spent(&mut self, pid: Pid, url: &str, mark: Mark) {
        let process = &mut self.processes[pid];
        if process.has_delete_failed && url.ends_with("/revoke") {
            process.undeleted.insert(mark);
        }
        let newest = process.newest.get(&mark.family).copied();
        let is_replaced = self.is_rotating && newest.is_some_and(|newest| mark.serial < newest);
        if !url.ends_with("/revoke") && (is_replaced || process.ended.contains(&mark)) {
            broken(
                Rule::TokenIsSpentOnce,
                format!("{pid} sent {mark:?} again; the newest is {newest:?}"),
            );
        }
    }
}
