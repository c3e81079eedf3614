//! Who meets whom, over what, and what must come of it. Knows not how.

/// What happens in a meeting, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Both agree on a version.
    Handshake,
    List,
    Call,
    /// A tool fails.
    Error,
    Progress,
    /// A call is cancelled, and the server knows.
    Cancel,
    /// The server asks the client something that it needs for a call.
    Ask,
    /// A resource is watched, and changes.
    Watch,
    /// A list changes.
    News,
    /// The server is killed while it runs a call, and another one takes its place.
    Kill,
}

impl Step {
    pub(super) const ALL: [Step; 10] = [
        Step::Handshake,
        Step::List,
        Step::Call,
        Step::Error,
        Step::Progress,
        Step::Cancel,
        Step::Ask,
        Step::Watch,
        Step::News,
        Step::Kill,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Handshake => "handshake",
            Step::List => "list",
            Step::Call => "call",
            Step::Error => "error",
            Step::Progress => "progress",
            Step::Cancel => "cancel",
            Step::Ask => "ask",
            Step::Watch => "watch",
            Step::News => "news",
            Step::Kill => "kill",
        }
    }
}

/// Which end is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Sse,
    Stdio,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Http => "Streamable HTTP",
            Transport::Sse => "HTTP+SSE",
            Transport::Stdio => "stdio",
        }
    }
}

/// Which era the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// It finds out.
    Automatic,
    Legacy,
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Everything,
    Files,
    Memory,
    /// A script of ours on an SDK for Node.
    Node {
        script: &'static str,
    },
    /// A script of ours on an SDK for Python, with the requirements in this file.
    Python {
        requirements: &'static str,
        script: &'static str,
    },
}

pub(super) struct Row {
    pub(super) ours: Ours,
    /// What the peer is called.
    pub(super) title: &'static str,
    pub(super) peer: Peer,
    pub(super) transport: Transport,
    pub(super) era: Era,
    /// What both must agree on.
    pub(super) version: &'static str,
    pub(super) pace: Pace,
    /// The steps that the peer does not have, and why.
    pub(super) lacks: &'static [(Step, &'static str)],
}

/// What is to be said of the start of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It is started late.
    Late,
    /// The link must be ready in time, although the first process is lost.
    Measured,
    Usual,
}

impl Row {
    pub(super) fn name(&self) -> String {
        let ours = match self.ours {
            Ours::Client => "client",
            Ours::Server => "server",
        };
        format!("{ours}, {}, {}", self.title, self.way())
    }

    /// Over what, and how.
    pub(super) fn way(&self) -> String {
        let era = match (self.era, self.pace) {
            (_, Pace::Late) => ", starts late",
            (Era::Automatic, _) => "",
            (Era::Legacy, _) => ", legacy",
        };
        format!("{}{era}", self.transport.name())
    }

    pub(super) fn is_measured(&self) -> bool {
        self.pace == Pace::Measured
    }

    /// Why the peer does not have this step, if it does not.
    pub(super) fn lack(&self, step: Step) -> Option<&'static str> {
        let lack = self.lacks.iter().find(|(lacking, _)| *lacking == step);
        lack.map(|(_, reason)| *reason)
    }

    /// The steps that must be gone through.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let is_there = |step: &Step| self.lack(*step).is_none();
        Step::ALL.into_iter().filter(is_there)
    }
}

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const FIRST: &str = "2024-11-05";
/// The server takes what it was offered last; the next process is spoken to as what it is.
const LEGACY_FIRST: &str = "2025-11-25, then 2026-07-28";

const AT_ONCE: &str = "its tools answer at once";
const NO_QUESTIONS: &str = "it asks nothing";
const NO_RESOURCES: &str = "it has nothing that could be watched";
const NO_CHANGES: &str = "its lists never change";
const NO_CANCELLATION: &str = "this version does not know that message, and does not survive it";
const BAD_CANCELLATION: &str =
    "this version cancels the call and does not survive that; the link starts it anew";
const CANNOT_CANCEL: &str = "this version has no way to cancel a call";

const FILES: &[(Step, &str)] = &[
    (Step::Progress, AT_ONCE),
    (Step::Cancel, AT_ONCE),
    (Step::Watch, NO_RESOURCES),
    (Step::News, NO_CHANGES),
];
const MEMORY: &[(Step, &str)] = &[
    (Step::Progress, AT_ONCE),
    (Step::Cancel, AT_ONCE),
    (Step::Ask, NO_QUESTIONS),
    (Step::News, NO_CHANGES),
];

/// A server of others, and our client.
const fn server(title: &'static str, peer: Peer, transport: Transport) -> Row {
    Row {
        ours: Ours::Client,
        title,
        peer,
        transport,
        era: Era::Automatic,
        version: LEGACY,
        pace: Pace::Usual,
        lacks: &[],
    }
}

/// A client of others, and our server.
const fn client(title: &'static str, peer: Peer, transport: Transport) -> Row {
    Row {
        ours: Ours::Server,
        ..server(title, peer, transport)
    }
}

/// With what speaks both eras, and finds out which is meant.
const fn modern(row: Row) -> Row {
    Row {
        version: MODERN,
        ..row
    }
}

/// With what speaks both eras, when the client wants the older one.
const fn legacy(row: Row) -> Row {
    Row {
        era: Era::Legacy,
        ..row
    }
}

/// With one that starts so late that both eras were offered to it when it is there.
const fn late(row: Row, version: &'static str) -> Row {
    Row {
        version,
        pace: Pace::Late,
        ..row
    }
}

const fn lacking(row: Row, lacks: &'static [(Step, &'static str)]) -> Row {
    Row { lacks, ..row }
}

/// One of those that die of the probe.
const fn old(
    title: &'static str,
    requirements: &'static str,
    lacks: &'static [(Step, &'static str)],
) -> Row {
    let script = "server_lowlevel.py";
    let peer = Peer::Python {
        requirements,
        script,
    };
    Row {
        version: FIRST,
        pace: Pace::Measured,
        lacks,
        ..server(title, peer, Transport::Stdio)
    }
}

const NODE_2: &str = "`@modelcontextprotocol/server` 2.4.0";
const NODE_2_SERVER: Peer = Peer::Node {
    script: "server.mjs",
};
const PYTHON_2: &str = "`mcp` 2.3.0, MCPServer";
const PYTHON_2_SERVER: Peer = Peer::Python {
    requirements: "hosts/load/v2",
    script: "server_mcpserver.py",
};
const PYTHON_1: &str = "`mcp` 1.30.0, FastMCP";
const PYTHON_1_SERVER: Peer = Peer::Python {
    requirements: "hosts/load/v1",
    script: "server_fastmcp.py",
};
const EVERYTHING: &str = "`server-everything` 2026.8.31";

const NODE_1_CLIENT: Peer = Peer::Node {
    script: "client_v1.mjs",
};
const NODE_2_CLIENT: Peer = Peer::Node {
    script: "client_v2.mjs",
};
const PYTHON_1_CLIENT: Peer = Peer::Python {
    requirements: "hosts/load/v1",
    script: "client_v1.py",
};
const PYTHON_2_CLIENT: Peer = Peer::Python {
    requirements: "hosts/load/v2",
    script: "client_v2.py",
};
const PYTHON_OLD_CLIENT: Peer = Peer::Python {
    requirements: "hosts/eras/old",
    script: "client_old.py",
};
const NODE_1: &str = "`@modelcontextprotocol/sdk` 1.32.2";
const NODE_2_AS_CLIENT: &str = "`@modelcontextprotocol/client` 2.4.0";
const PYTHON_1_AS_CLIENT: &str = "`mcp` 1.30.0";
const PYTHON_2_AS_CLIENT: &str = "`mcp` 2.3.0";

pub(super) const ROWS: &[Row] = &[
    server(EVERYTHING, Peer::Everything, Transport::Stdio),
    server(EVERYTHING, Peer::Everything, Transport::Http),
    server(EVERYTHING, Peer::Everything, Transport::Sse),
    lacking(
        server(
            "`server-filesystem` 2026.8.31",
            Peer::Files,
            Transport::Stdio,
        ),
        FILES,
    ),
    lacking(
        server("`server-memory` 2026.8.31", Peer::Memory, Transport::Stdio),
        MEMORY,
    ),
    modern(server(NODE_2, NODE_2_SERVER, Transport::Stdio)),
    late(
        server(NODE_2, NODE_2_SERVER, Transport::Stdio),
        LEGACY_FIRST,
    ),
    legacy(server(NODE_2, NODE_2_SERVER, Transport::Stdio)),
    modern(server(NODE_2, NODE_2_SERVER, Transport::Http)),
    legacy(server(NODE_2, NODE_2_SERVER, Transport::Http)),
    modern(server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio)),
    late(server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio), MODERN),
    legacy(server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio)),
    modern(server(PYTHON_2, PYTHON_2_SERVER, Transport::Http)),
    legacy(server(PYTHON_2, PYTHON_2_SERVER, Transport::Http)),
    server(PYTHON_1, PYTHON_1_SERVER, Transport::Stdio),
    server(PYTHON_1, PYTHON_1_SERVER, Transport::Http),
    server(PYTHON_1, PYTHON_1_SERVER, Transport::Sse),
    old(
        "`mcp` 1.8.1, low-level",
        "interop/v1_8",
        &[(Step::Cancel, BAD_CANCELLATION)],
    ),
    old(
        "`mcp` 1.3.0, low-level",
        "interop/v1_3",
        &[(Step::Cancel, BAD_CANCELLATION)],
    ),
    old(
        "`mcp` 1.1.3, low-level",
        "hosts/eras/old",
        &[(Step::Cancel, NO_CANCELLATION)],
    ),
    client(NODE_1, NODE_1_CLIENT, Transport::Stdio),
    client(NODE_1, NODE_1_CLIENT, Transport::Http),
    client(NODE_1, NODE_1_CLIENT, Transport::Sse),
    modern(client(NODE_2_AS_CLIENT, NODE_2_CLIENT, Transport::Stdio)),
    legacy(client(NODE_2_AS_CLIENT, NODE_2_CLIENT, Transport::Stdio)),
    modern(client(NODE_2_AS_CLIENT, NODE_2_CLIENT, Transport::Http)),
    legacy(client(NODE_2_AS_CLIENT, NODE_2_CLIENT, Transport::Http)),
    client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Stdio),
    client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Http),
    client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Sse),
    modern(client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Stdio,
    )),
    legacy(client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Stdio,
    )),
    modern(client(PYTHON_2_AS_CLIENT, PYTHON_2_CLIENT, Transport::Http)),
    legacy(client(PYTHON_2_AS_CLIENT, PYTHON_2_CLIENT, Transport::Http)),
    Row {
        version: FIRST,
        lacks: &[(Step::Cancel, CANNOT_CANCEL)],
        ..client("`mcp` 1.1.3", PYTHON_OLD_CLIENT, Transport::Stdio)
    },
];
