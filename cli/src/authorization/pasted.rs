//! Judges a line that a person pastes as the URL of the last page of a sign-in. Does not depend on the terminal.

/// What a pasted line is for the sign-in that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pasted {
    /// The answer of the authorization server, which ends the sign-in.
    Answer,
    /// A line without text, such as a second Enter.
    Empty,
    /// A line without an answer, such as the URL of the sign-in page. The authorizer does not act on it.
    NoAnswer,
    /// An answer to another sign-in.
    OtherSignIn,
}

impl Pasted {
    /// Judges a line for the sign-in at this page.
    pub(super) fn new(line: &str, page: &str) -> Pasted {
        let line = line.trim();
        if line.is_empty() {
            return Pasted::Empty;
        }
        if value(line, "code").is_none() && value(line, "error").is_none() {
            return Pasted::NoAnswer;
        }
        match value(line, "state") == value(page, "state") {
            true => Pasted::Answer,
            false => Pasted::OtherSignIn,
        }
    }

    /// Returns the text for a person who pasted the wrong line: what is wrong with it, and what to paste.
    pub(super) const fn advice(self) -> Option<&'static str> {
        match self {
            Pasted::Answer | Pasted::Empty => None,
            Pasted::NoAnswer => Some(
                "the pasted line has no `code` and no `error`, so it is not the URL of the last page: paste the URL that the browser shows after the sign-in",
            ),
            Pasted::OtherSignIn => Some(
                "the pasted URL belongs to another sign-in: sign in at the page above, and paste the URL that the browser shows after that",
            ),
        }
    }
}

/// Returns the value of a parameter in the query of a URL, or in a query without its URL. `None` if the parameter is absent or given twice: the authorizer
/// uses neither.
fn value(url: &str, name: &str) -> Option<String> {
    // The whole URL has a question mark before the first parameter. Later ones belong to a value.
    let query = match url.split_once('?') {
        Some((before, query)) if !before.contains(['=', '&']) => query,
        _ => url,
    };
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut values = pairs.filter_map(|(of, value)| (of == name).then(|| value.into_owned()));
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "https://a.example/authorize?response_type=code&state=s1&code_challenge=c&code_challenge_method=S256";

    #[test]
    fn only_a_line_with_code_or_error_and_the_state_of_the_page_ends_the_sign_in() {
        for (line, pasted) in [
            (
                "http://127.0.0.1:1/callback?code=x&state=s1\n",
                Pasted::Answer,
            ),
            (
                " http://127.0.0.1:1/callback?error=access_denied&state=s1 \n",
                Pasted::Answer,
            ),
            ("http://127.0.0.1:1/?state=s1&code=a?b#top", Pasted::Answer),
            ("code=x&state=s1", Pasted::Answer),
            ("?code=x&state=s%31", Pasted::Answer),
            ("?code=x&state=s1", Pasted::Answer),
            (PAGE, Pasted::NoAnswer),
            (
                "http://127.0.0.1:1/callback?x=?code=x&state=s1",
                Pasted::NoAnswer,
            ),
            (
                "http://127.0.0.1:1/callback?code=x&code=y&state=s1",
                Pasted::NoAnswer,
            ),
            (
                "http://127.0.0.1:1/callback?state=s1#code=x",
                Pasted::NoAnswer,
            ),
            ("yes", Pasted::NoAnswer),
            ("\n", Pasted::Empty),
            ("http://127.0.0.1:1/?code=x&state=s12", Pasted::OtherSignIn),
            ("http://127.0.0.1:1/?code=x&xstate=s1", Pasted::OtherSignIn),
            ("http://127.0.0.1:1/?code=x", Pasted::OtherSignIn),
        ] {
            assert_eq!(Pasted::new(line, PAGE), pasted, "{line}");
        }
    }

    #[test]
    fn page_without_a_state_is_answered_without_one() {
        let page = "https://a.example/authorize?response_type=code";
        assert_eq!(Pasted::new("?code=x", page), Pasted::Answer);
        assert_eq!(Pasted::new("?code=x&state=s", page), Pasted::OtherSignIn);
    }
}
