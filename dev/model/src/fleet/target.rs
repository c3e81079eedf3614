//! The fuzz target of several servers with one store: its operations, and the last phase, in which each client gets a reply or is told why not.

use everlink::server::State;
use everlink::{Input, StoreAnswer};

use super::{Client, Fleet, Got, NODES};
use crate::script::{Read, Script, choices};

const CLIENTS: usize = 2;

/// The step of the last phase, and how many there are at most: 100 s, longer than all timeouts together.
const STEP: u64 = 250;
const MOST_STEPS: u32 = 400;

/// How the store behaves.
#[derive(Debug)]
struct Setup {
    /// It carries out everything at once, except for servers that are cut off.
    is_prompt: bool,
    /// It never comes back: in the last phase, no server reaches it.
    is_lost: bool,
}

impl Read for Setup {
    fn read(script: &mut Script<'_>) -> Setup {
        let byte = script.byte();
        Setup {
            is_prompt: byte % 2 == 0,
            is_lost: byte & 6 == 6,
        }
    }
}

choices! {
    enum Op {
        /// A client does what is next: it opens a session, calls, or resumes the stream of its call.
        8 Go { who: u8, node: u8 },
        /// The connection of a client breaks.
        2 Break(u8),
        /// The application sends the next message of a call, or its reply.
        6 Work { node: u8, which: u8 },
        /// The store carries out requests of a server, or fails to.
        4 Store { node: u8, how: How },
        2 Notes(u8),
        1 Renew(u8),
        /// A server does not reach the store from now on, or does again.
        2 Cut(u8),
        1 Kill(u8),
        1 Start(u8),
        1 Drain(u8),
        /// The store loses all data.
        1 Forget,
        4 Wait(u8),
    }
}

choices! {
    #[derive(Copy)]
    enum How {
        4 All,
        2 One,
        /// The first request that wants an answer is not carried out, and the server is told.
        2 Fails,
        /// It is carried out, and the answer is lost.
        2 LosesAnswer,
        /// It is neither carried out nor answered.
        1 LosesRequest,
    }
}

/// Servers with their clients.
struct World {
    fleet: Fleet,
    clients: Vec<Client>,
    /// Whether each client got a reply in the last phase.
    is_satisfied: [bool; CLIENTS],
    instances: u32,
    is_prompt: bool,
}

/// Performs the operations, and then lets the servers come to rest.
pub(crate) fn run(data: &[u8]) {
    let (setup, ops) = read(data);
    let mut world = World {
        fleet: Fleet::new([1, 2, 3]),
        clients: (0..CLIENTS).map(Client::new).collect(),
        is_satisfied: [false; CLIENTS],
        instances: 3,
        is_prompt: setup.is_prompt,
    };
    (0..NODES).for_each(|at| world.fleet.renew(at));
    for op in ops {
        world.act(&op);
        world.settle();
        (0..CLIENTS).for_each(|who| world.read(who));
        world.fleet.check();
    }
    if setup.is_lost {
        world.lose_store();
    } else {
        world.calm_down();
    }
}

/// The setup and the operations, for people.
pub(crate) fn show(data: &[u8]) -> String {
    let (setup, ops) = read(data);
    ops.iter()
        .fold(format!("{setup:?}\n"), |text, op| format!("{text}{op:?}\n"))
}

fn read(data: &[u8]) -> (Setup, Vec<Op>) {
    let mut script = Script::new(data, 0);
    (script.read(), script.operations())
}

impl World {
    fn act(&mut self, op: &Op) {
        let node = |which: &u8| usize::from(*which) % NODES;
        let fleet = &mut self.fleet;
        match op {
            Op::Go { who, node: at } => self.go(usize::from(*who) % CLIENTS, node(at)),
            Op::Break(who) => {
                let client = &self.clients[usize::from(*who) % CLIENTS];
                client
                    .exchange()
                    .into_iter()
                    .for_each(|id| fleet.hang_up(id));
            }
            Op::Work { node: at, which } => {
                let jobs = fleet.nodes[node(at)].jobs.len().max(1);
                fleet.work(node(at), usize::from(*which) % jobs);
            }
            Op::Store { node: at, how } => self.carry_out(node(at), *how),
            Op::Notes(at) => self.pass_notes(node(at)),
            Op::Renew(at) => fleet.renew(node(at)),
            Op::Cut(at) => {
                let until = &mut fleet.nodes[node(at)].cut_off_until;
                *until = u64::MAX - *until;
            }
            Op::Kill(at) => {
                fleet.kill(node(at));
            }
            Op::Start(at) => self.start(node(at)),
            Op::Drain(at) => {
                fleet.drain(node(at));
            }
            Op::Forget => fleet.forget(),
            Op::Wait(how) => self.wait([1, 50, 300, 1_000, 2_500, 6_000][usize::from(how % 6)]),
        }
    }

    /// A client does what is next at this server, unless it waits for something.
    fn go(&mut self, who: usize, at: usize) {
        let client = &mut self.clients[who];
        if client.exchange().is_none() {
            let (head, body) = client.next(self.fleet.now, |calls| calls % 4);
            let id = self.fleet.send(at, head, &body);
            client.sent(id);
            // A server that is closed hears nobody.
            let server = self.fleet.nodes[at].server.as_ref();
            if server.is_some_and(|server| server.state() == State::Closed) {
                self.fleet.stop_reading(id);
            }
        }
    }

    fn read(&mut self, who: usize) {
        if let Some(Got::Reply(id)) = self.clients[who].read(&mut self.fleet) {
            self.is_satisfied[who] = true;
            self.fleet.hang_up(id);
        }
    }

    fn start(&mut self, at: usize) {
        let instance = self.instances + 1;
        if self.fleet.start(at, || instance) {
            self.instances = instance;
            self.fleet.renew(at);
        }
    }

    fn wait(&mut self, millis: u64) {
        self.fleet.now += millis;
        let now = self.fleet.instant();
        let nodes = self.fleet.nodes.iter_mut();
        for server in nodes.filter_map(|node| node.server.as_mut()) {
            server.handle_timeout(now);
        }
        self.fleet.expire_leases();
    }

    fn poll(&mut self, at: usize) {
        self.fleet.poll(at, |_, _| 1);
    }

    /// Polls all servers. A prompt store carries out what they want.
    fn settle(&mut self) {
        (0..NODES).for_each(|at| self.poll(at));
        if !self.is_prompt {
            return;
        }
        // A request that is passed on takes a few turns.
        for _ in 0..4 {
            for at in 0..NODES {
                if self.fleet.nodes[at].cut_off_until == 0 {
                    self.fleet.renew(at);
                    self.carry_out(at, How::All);
                    self.pass_notes(at);
                    self.poll(at);
                }
            }
        }
    }

    fn carry_out(&mut self, at: usize, how: How) {
        let fleet = &mut self.fleet;
        let instance = fleet.nodes[at].instance;
        if fleet.nodes[at].server.is_none() {
            return;
        }
        let outbox = &mut fleet.nodes[at].outbox;
        let lookup = outbox.iter().position(|of| of.request.lookup().is_some());
        let (most, is_answered) = match (how, lookup) {
            (How::All, _) => (outbox.len(), true),
            (How::One, _) => (1, true),
            // The requests before it are carried out, because the order counts.
            (_, Some(place)) => (place, false),
            (_, None) => return,
        };
        let most = most.min(outbox.len());
        let requests: Vec<_> = outbox.drain(..most).map(|of| of.request).collect();
        let special = (!is_answered).then(|| outbox.pop_front()).flatten();
        for request in requests {
            let answer = fleet.carry_out(instance, request);
            if let Some(answer) = answer.filter(|_| is_answered) {
                fleet.tell(at, answer);
            }
        }
        if let Some(request) = special.map(|of| of.request) {
            match (how, request.lookup()) {
                (How::Fails, Some(lookup)) => {
                    let answer = StoreAnswer::Failed;
                    fleet.tell(at, Input::Stored { lookup, answer });
                }
                (How::LosesAnswer, _) => drop(fleet.carry_out(instance, request)),
                _ => {}
            }
        }
        self.poll(at);
    }

    fn pass_notes(&mut self, at: usize) {
        let instance = self.fleet.nodes[at].instance;
        if self.fleet.nodes[at].server.is_some() {
            while let Some(note) = self.fleet.next_note(instance) {
                self.fleet.tell(at, note);
            }
            self.poll(at);
        }
    }

    /// The application goes on with all of its calls.
    fn work_on_all(&mut self) {
        for at in 0..NODES {
            // From the last one on: a job that is done is removed.
            for place in (0..self.fleet.nodes[at].jobs.len()).rev() {
                self.fleet.work(at, place);
            }
        }
    }

    /// Nothing fails any more: each client gets a reply.
    fn calm_down(&mut self) {
        self.is_prompt = true;
        (0..NODES).for_each(|at| self.start(at));
        self.settle();
        self.is_satisfied = [false; CLIENTS];
        for step in 0..MOST_STEPS {
            self.wait(STEP);
            self.work_on_all();
            self.settle();
            for who in 0..CLIENTS {
                self.read(who);
                if !self.is_satisfied[who] {
                    self.go(who, (who + step as usize) % NODES);
                }
            }
            self.fleet.check();
            if self.is_satisfied == [true; CLIENTS] {
                return;
            }
        }
        let clients = &self.clients;
        panic!("(6) a client has no reply, and nothing fails: {clients:?}");
    }

    /// No server reaches the store again: each says so to its clients, or breaks the connection.
    fn lose_store(&mut self) {
        self.is_prompt = false;
        (0..CLIENTS).for_each(|who| self.go(who, who % NODES));
        // 20 s: longer than the lease and the timeout of a look-up together.
        for _ in 0..80 {
            self.wait(STEP);
            self.work_on_all();
            self.settle();
        }
        (0..CLIENTS).for_each(|who| self.read(who));
        self.fleet.check();
        for (id, exchange) in &self.fleet.exchanges {
            let is_answered = exchange.status.is_some() || exchange.end.is_some();
            assert!(is_answered, "exchange {id} has no answer: {exchange:?}");
        }
    }
}
