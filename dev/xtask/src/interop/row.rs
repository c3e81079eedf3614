//! The pairs of client and server, with transport and expected result. Must not run anything.

/// The steps of a row, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Both ends agree on a version.
    Handshake,
    List,
    Call,
    /// A tool fails.
    Error,
    Progress,
    /// A call is cancelled, and the server notices.
    Cancel,
    /// The server asks the client for something that it needs for a call.
    Ask,
    /// A watched resource changes.
    Watch,
    /// A list changes.
    News,
    /// The server is killed during a call, and a new one replaces it.
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

/// The era of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// The client detects it.
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
    /// The name of the peer.
    pub(super) title: &'static str,
    pub(super) peer: Peer,
    pub(super) transport: Transport,
    pub(super) era: Era,
    /// The version that both must agree on.
    pub(super) version: &'static str,
    pub(super) pace: Pace,
    /// The steps that the peer does not support, and why.
    pub(super) unsupported: &'static [(Step, &'static str)],
}

/// How a server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It starts late.
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
        format!("{ours}, {}, {}", self.title, self.transport_and_era())
    }

    /// The transport and the era.
    pub(super) fn transport_and_era(&self) -> String {
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

    /// The reason why the peer does not support this step, if it does not.
    pub(super) fn reason_unsupported(&self, step: Step) -> Option<&'static str> {
        let entry = self
            .unsupported
            .iter()
            .find(|(unsupported, _)| *unsupported == step);
        entry.map(|(_, reason)| *reason)
    }

    /// The steps to run.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let is_supported = |step: &Step| self.reason_unsupported(*step).is_none();
        Step::ALL.into_iter().filter(is_supported)
    }
}

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const FIRST: &str = "2024-11-05";
/// The server takes the version that was offered last. The next process is treated as modern.
const LEGACY_FIRST: &str = "2025-11-25, then 2026-07-28";

const QUICK_TOOLS: &str = "its tools answer at once";
const NO_QUESTIONS: &str = "it asks nothing";
const NO_RESOURCES: &str = "it has nothing that could be watched";
const NO_CHANGES: &str = "its lists never change";
const NO_CANCELLATION: &str = "this version does not know that message, and does not survive it";
const BAD_CANCELLATION: &str =
    "this version cancels the call and does not survive that; the link starts it anew";
const CANNOT_CANCEL: &str = "this version has no way to cancel a call";

const FILES: &[(Step, &str)] = &[
    (Step::Progress, QUICK_TOOLS),
    (Step::Cancel, QUICK_TOOLS),
    (Step::Watch, NO_RESOURCES),
    (Step::News, NO_CHANGES),
];
const MEMORY: &[(Step, &str)] = &[
    (Step::Progress, QUICK_TOOLS),
    (Step::Cancel, QUICK_TOOLS),
    (Step::Ask, NO_QUESTIONS),
    (Step::News, NO_CHANGES),
];

/// A server of another project with our client.
const fn their_server(title: &'static str, peer: Peer, transport: Transport) -> Row {
    Row {
        ours: Ours::Client,
        title,
        peer,
        transport,
        era: Era::Automatic,
        version: LEGACY,
        pace: Pace::Usual,
        unsupported: &[],
    }
}

/// A client of another project with our server.
const fn their_client(title: &'static str, peer: Peer, transport: Transport) -> Row {
    Row {
        ours: Ours::Server,
        ..their_server(title, peer, transport)
    }
}

/// A peer that speaks both eras and detects the right one.
const fn modern(row: Row) -> Row {
    Row {
        version: MODERN,
        ..row
    }
}

/// A peer that speaks both eras, with a client that wants the legacy one.
const fn legacy(row: Row) -> Row {
    Row {
        era: Era::Legacy,
        ..row
    }
}

/// A server that starts so late that both eras were offered before it reads.
const fn late_start(row: Row, version: &'static str) -> Row {
    Row {
        version,
        pace: Pace::Late,
        ..row
    }
}

const fn without_steps(row: Row, unsupported: &'static [(Step, &'static str)]) -> Row {
    Row { unsupported, ..row }
}

/// A server that dies of the probe.
const fn dies_of_probe(
    title: &'static str,
    requirements: &'static str,
    unsupported: &'static [(Step, &'static str)],
) -> Row {
    let script = "server_lowlevel.py";
    let peer = Peer::Python {
        requirements,
        script,
    };
    Row {
        version: FIRST,
        pace: Pace::Measured,
        unsupported,
        ..their_server(title, peer, Transport::Stdio)
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
    their_server(EVERYTHING, Peer::Everything, Transport::Stdio),
    their_server(EVERYTHING, Peer::Everything, Transport::Http),
    their_server(EVERYTHING, Peer::Everything, Transport::Sse),
    without_steps(
        their_server(
            "`server-filesystem` 2026.8.31",
            Peer::Files,
            Transport::Stdio,
        ),
        FILES,
    ),
    without_steps(
        their_server("`server-memory` 2026.8.31", Peer::Memory, Transport::Stdio),
        MEMORY,
    ),
    modern(their_server(NODE_2, NODE_2_SERVER, Transport::Stdio)),
    late_start(
        their_server(NODE_2, NODE_2_SERVER, Transport::Stdio),
        LEGACY_FIRST,
    ),
    legacy(their_server(NODE_2, NODE_2_SERVER, Transport::Stdio)),
    modern(their_server(NODE_2, NODE_2_SERVER, Transport::Http)),
    legacy(their_server(NODE_2, NODE_2_SERVER, Transport::Http)),
    modern(their_server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio)),
    late_start(
        their_server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio),
        MODERN,
    ),
    legacy(their_server(PYTHON_2, PYTHON_2_SERVER, Transport::Stdio)),
    modern(their_server(PYTHON_2, PYTHON_2_SERVER, Transport::Http)),
    legacy(their_server(PYTHON_2, PYTHON_2_SERVER, Transport::Http)),
    their_server(PYTHON_1, PYTHON_1_SERVER, Transport::Stdio),
    their_server(PYTHON_1, PYTHON_1_SERVER, Transport::Http),
    their_server(PYTHON_1, PYTHON_1_SERVER, Transport::Sse),
    dies_of_probe(
        "`mcp` 1.8.1, low-level",
        "interop/v1_8",
        &[(Step::Cancel, BAD_CANCELLATION)],
    ),
    dies_of_probe(
        "`mcp` 1.3.0, low-level",
        "interop/v1_3",
        &[(Step::Cancel, BAD_CANCELLATION)],
    ),
    dies_of_probe(
        "`mcp` 1.1.3, low-level",
        "hosts/eras/old",
        &[(Step::Cancel, NO_CANCELLATION)],
    ),
    their_client(NODE_1, NODE_1_CLIENT, Transport::Stdio),
    their_client(NODE_1, NODE_1_CLIENT, Transport::Http),
    their_client(NODE_1, NODE_1_CLIENT, Transport::Sse),
    modern(their_client(
        NODE_2_AS_CLIENT,
        NODE_2_CLIENT,
        Transport::Stdio,
    )),
    legacy(their_client(
        NODE_2_AS_CLIENT,
        NODE_2_CLIENT,
        Transport::Stdio,
    )),
    modern(their_client(
        NODE_2_AS_CLIENT,
        NODE_2_CLIENT,
        Transport::Http,
    )),
    legacy(their_client(
        NODE_2_AS_CLIENT,
        NODE_2_CLIENT,
        Transport::Http,
    )),
    their_client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Stdio),
    their_client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Http),
    their_client(PYTHON_1_AS_CLIENT, PYTHON_1_CLIENT, Transport::Sse),
    modern(their_client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Stdio,
    )),
    legacy(their_client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Stdio,
    )),
    modern(their_client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Http,
    )),
    legacy(their_client(
        PYTHON_2_AS_CLIENT,
        PYTHON_2_CLIENT,
        Transport::Http,
    )),
    Row {
        version: FIRST,
        unsupported: &[(Step::Cancel, CANNOT_CANCEL)],
        ..their_client("`mcp` 1.1.3", PYTHON_OLD_CLIENT, Transport::Stdio)
    },
];
