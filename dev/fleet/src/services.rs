//! Starts, kills and restarts what a fleet consists of: Redis, nodes, and a load balancer in front of them. All end with the value that holds them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// A directory that is removed at the end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Result<Directory, Failure> {
        let name = format!("everlink-fleet-{}-{}", std::process::id(), free_port()?);
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed at the end.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process, Failure> {
        let name = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("cannot start {name:?}: {error}"))?;
        Ok(Process(child))
    }

    /// Sends SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Sends SIGTERM, and waits for the end. Returns how long it took.
    pub(crate) fn terminate(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        Command::new("kill").arg(self.0.id().to_string()).status()?;
        self.0.wait()?;
        Ok(begun.elapsed())
    }

    /// Waits for the end. The process must end by itself within this time, with success.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a process ended with {status}").into()),
                None => thread::sleep(Duration::from_millis(50)),
            }
        }
        Err(format!("a process did not end within {} s", limit.as_secs()).into())
    }

    /// The time that the processors spent on it.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Failure> {
        let schedule = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id()))?;
        let nanos = schedule.split_whitespace().next();
        let nanos = nanos.and_then(|nanos| nanos.parse().ok());
        Ok(Duration::from_nanos(nanos.ok_or("no schedstat")?))
    }

    /// The resident memory, in bytes.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.ok_or("no VmRSS")? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Redis with an append-only file.
pub(crate) struct Redis {
    process: Process,
    directory: Directory,
    pub(crate) port: u16,
}

impl Redis {
    pub(crate) fn start() -> Result<Redis, Failure> {
        let (directory, port) = (Directory::new()?, free_port()?);
        let process = Redis::spawn(&directory.0, port)?;
        Ok(Redis {
            process,
            directory,
            port,
        })
    }

    fn spawn(directory: &Path, port: u16) -> Result<Process, Failure> {
        let port_text = port.to_string();
        let directory = directory.to_string_lossy();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port_text, "--dir", &directory]);
        command.args(["--appendonly", "yes", "--save", "", "--loglevel", "warning"]);
        let process = Process::start(&mut command)?;
        wait_for_port(port)?;
        Ok(process)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Stops it with SIGTERM, as a restart does.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.process.terminate().map(drop)
    }

    /// Kills it. From now on, it has written each command to its file before it answers.
    pub(crate) fn kill_after_writes(&mut self) -> Result<(), Failure> {
        self.run(&["config", "set", "appendfsync", "always"])?;
        self.run(&["set", "written", "1"])?;
        self.process.kill();
        Ok(())
    }

    /// Starts it again with its data, and waits until it has read them.
    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        self.process = Redis::spawn(&self.directory.0, self.port)?;
        for _ in 0..600 {
            if self.run(&["ping"])?.trim() == "PONG" {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err("Redis did not read its data within a minute".into())
    }

    /// Runs a command, and returns what `redis-cli` prints.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let port = self.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-p", &port])
            .args(words)
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        self.process.memory()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// The bytes that it has allocated, and the number of its keys.
    pub(crate) fn used(&self) -> Result<(u64, u64), Failure> {
        let memory = self.run(&["info", "memory"])?;
        let used = memory.lines().find_map(|line| {
            let value = line.strip_prefix("used_memory:")?;
            value.trim().parse().ok()
        });
        let keys = self.run(&["dbsize"])?;
        let keys = keys.trim().parse().map_err(|_| format!("dbsize: {keys}"))?;
        Ok((used.ok_or("no used_memory")?, keys))
    }
}

/// A node, which can be killed and started again at the same port.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) port: u16,
    redis: String,
    ran: PathBuf,
}

impl Node {
    pub(crate) fn start(redis: &str, ran: &Path) -> Result<Node, Failure> {
        let port = free_port()?;
        let process = Node::spawn(port, redis, ran)?;
        Ok(Node {
            process,
            port,
            redis: redis.to_owned(),
            ran: ran.to_owned(),
        })
    }

    fn spawn(port: u16, redis: &str, ran: &Path) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["node", &format!("127.0.0.1:{port}"), redis])
            .arg(ran);
        let process = Process::start(&mut command)?;
        wait_for_port(port)?;
        Ok(process)
    }

    /// Kills the node, and starts another one at its port.
    pub(crate) fn replace(&mut self) -> Result<(), Failure> {
        self.process.kill();
        self.start_again()
    }

    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        self.process = Node::spawn(self.port, &self.redis, &self.ran)?;
        Ok(())
    }
}

/// A load balancer in front of three nodes, without stickiness, with the configuration of the example.
pub(crate) struct Balancer {
    _process: Process,
    _directory: Directory,
    pub(crate) port: u16,
}

impl Balancer {
    fn start(mut command: Command, directory: Directory, port: u16) -> Result<Balancer, Failure> {
        let process = Process::start(&mut command)?;
        wait_for_port(port)?;
        Ok(Balancer {
            _process: process,
            _directory: directory,
            port,
        })
    }

    pub(crate) fn haproxy(nodes: &[u16]) -> Result<Balancer, Failure> {
        let (directory, port) = (Directory::new()?, free_port()?);
        let mut config = include_str!("../../../examples/fleet/haproxy.cfg")
            .replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
        for (index, node) in nodes.iter().enumerate() {
            let name = format!(" node-{}:8080", index + 1);
            config = config.replace(&name, &format!(" 127.0.0.1:{node}"));
        }
        let file = directory.0.join("haproxy.cfg");
        fs::write(&file, config)?;
        let mut command = Command::new("haproxy");
        command.arg("-q").arg("-f").arg(&file);
        Balancer::start(command, directory, port)
    }

    pub(crate) fn nginx(nodes: &[u16]) -> Result<Balancer, Failure> {
        let (directory, port) = (Directory::new()?, free_port()?);
        let site = include_str!("../../../examples/fleet/nginx.conf");
        let servers: String = nodes
            .iter()
            .map(|port| format!("server 127.0.0.1:{port} max_fails=0;\n"))
            .collect();
        let (before, rest) = site
            .split_once("# nodes\n")
            .ok_or("no `# nodes` in nginx.conf")?;
        let (_, after) = rest
            .split_once("# end of nodes\n")
            .ok_or("no end of nodes")?;
        let site = format!("{before}{servers}{after}")
            .replace("listen 8080;", &format!("listen 127.0.0.1:{port};"));
        let path = directory.0.to_string_lossy().into_owned();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\nworker_rlimit_nofile 20000;\nevents {{ worker_connections 8192; }}\nhttp {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n{site}\n}}\n"
        );
        let file = directory.0.join("nginx.conf");
        fs::write(&file, config)?;
        let mut command = Command::new("nginx");
        command
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(directory.0.join("start.log"));
        Balancer::start(command, directory, port)
    }
}

/// The program `everlink`, which is beside this one.
pub(crate) fn everlink() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe()?.with_file_name("everlink"))
}

/// Starts a guard that listens at this port, in front of a demo server.
pub(crate) fn start_guard(port: u16, options: &[&str]) -> Result<Process, Failure> {
    let everlink = everlink()?;
    let mut command = Command::new(&everlink);
    command.args(["guard", "--listen", &format!("http://127.0.0.1:{port}/mcp")]);
    command.args(options).arg("--");
    command.arg(&everlink).arg("demo-server");
    command.env("EVERLINK_STORE_KEY", "the key of the tests");
    let process = Process::start(command.stderr(Stdio::null()))?;
    wait_for_port(port)?;
    Ok(process)
}

/// A port that is free now.
pub(crate) fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

pub(crate) fn wait_for_port(port: u16) -> Result<(), Failure> {
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("nothing listens on port {port} after 10 s").into())
}
