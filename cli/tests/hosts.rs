//! Tests ranks on two hosts, which are network namespaces with names of their own, set up in ways that systems are.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::RunOutput;
use roundelay_tests::{CheckNeeds, port, skip};

/// The table of names that both hosts have.
const NAMES: &str = "127.0.0.1 localhost\n10.81.0.1 first\n10.81.0.2 second\n";
/// The table of names that Debian's installer makes on the first host.
const OWN_NAME_IS_LOOPBACK: &str = "127.0.0.1 localhost\n127.0.1.1 first\n10.81.0.2 second\n";

/// Reads all packets of a host until its input ends, and says which words were in them.
const EAR: &str = "import select, socket, sys\n\
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n\
    ear.bind(('eth0', 0))\n\
    print('ready', flush=True)\n\
    words, seen = [word.encode() for word in sys.argv[1:]], set()\n\
    while True:\n\
    \tready = select.select([ear, sys.stdin], [], [])[0]\n\
    \tif ear in ready:\n\
    \t\tpacket = ear.recv(1 << 17)\n\
    \t\tseen.update(word for word in words if word in packet)\n\
    \telif sys.stdin in ready:\n\
    \t\tbreak\n\
    print(*[word in seen for word in words], flush=True)\n";

/// Two hosts and a cable between them; they vanish with this.
struct TwoHosts {
    name: String,
    /// The folder of their tables of names.
    folder: PathBuf,
}

/// Runs `ip` with arguments; says why it failed.
fn ip(args: &str) -> Result<(), String> {
    let ran = Command::new("ip").args(args.split_whitespace()).output();
    let ran = ran.map_err(|e| format!("ip: {e}"))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("ip {args}: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}

impl TwoHosts {
    /// Makes them, and does that much more to the first; `None`, and a skip, where namespaces cannot be made.
    fn new(names: [&str; 2], more: &[&str]) -> Option<TwoHosts> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rh{}x{number}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let hosts = TwoHosts { name, folder };
        std::fs::create_dir_all(&hosts.folder).expect("a folder");
        for (host, names) in names.iter().enumerate() {
            std::fs::write(hosts.folder.join(host.to_string()), names).expect("a file");
        }
        if let Err(why) = hosts.make() {
            skip(CheckNeeds::Namespaces, format!("network namespaces cannot be made here: {why}"));
            return None;
        }
        for args in more {
            let done = ip(&format!("-n {}h0 {args}", hosts.name));
            assert_eq!(done, Ok(()));
        }
        Some(hosts)
    }

    fn make(&self) -> Result<(), String> {
        let name = &self.name;
        ip(&format!("netns add {name}h0"))?;
        ip(&format!("netns add {name}h1"))?;
        ip(&format!("-n {name}h0 link add eth0 type veth peer name eth0 netns {name}h1"))?;
        for host in 0..2 {
            ip(&format!("-n {name}h{host} link set lo up"))?;
            ip(&format!("-n {name}h{host} addr add 10.81.0.{}/24 dev eth0", host + 1))?;
            ip(&format!("-n {name}h{host} link set eth0 up"))?;
        }
        Ok(())
    }

    /// Returns a command on a host, with its table of names as /etc/hosts.
    fn on(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &format!("{}h{host}", self.name),
            "unshare",
            "-m",
            "sh",
            "-c",
        ]);
        command.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"");
        command.arg(self.folder.join(host.to_string())).arg(program);
        command
    }

    /// Sets a variable of the system on both hosts.
    fn set(&self, setting: &str) {
        for host in 0..2 {
            let done = self.on(host, "sysctl").args(["-qw", setting]).status();
            assert!(done.is_ok_and(|status| status.success()), "{setting}");
        }
    }

    /// Returns the bytes that the first host has received from itself.
    fn loopback(&self) -> u64 {
        let out = self.on(0, "cat").arg("/proc/net/dev").output().expect("it runs").stdout;
        let text = String::from_utf8_lossy(&out).into_owned();
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"));
        let bytes = line.and_then(|line| line.split_ascii_whitespace().next());
        bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// Starts a verb of a rank of two, which meet at the first host's name, on the host of its number.
    fn start(&self, rank: usize, verb: &[&str], store: &str, variables: &[(&str, &str)]) -> Child {
        let mut command = self.on(rank, env!("CARGO_BIN_EXE_roundelay"));
        command.args(verb).env_remove("ROUNDELAY_HINTS").env("ROUNDELAY_TUNED", "");
        command.env("ROUNDELAY_STORE", store).env("ROUNDELAY_TIMEOUT_MS", "20000");
        command.env("ROUNDELAY_RANK", rank.to_string()).env("ROUNDELAY_SIZE", "2");
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank")
    }

    /// Runs a verb of two ranks, each with variables of its own.
    fn both(&self, verb: &[&str], variables: [&[(&str, &str)]; 2]) -> [RunOutput; 2] {
        let store = format!("first:{}", port());
        let ranks = [0, 1].map(|rank| self.start(rank, verb, &store, variables[rank]));
        ranks.map(|rank| RunOutput::of(rank.wait_with_output().expect("its output")))
    }

    /// Runs something while all bytes on the cable are read; returns which of the words were there. `None`, and a skip,
    /// where nothing can read them.
    fn overhear(&self, words: &[&str], run: impl FnOnce()) -> Option<Vec<bool>> {
        let mut ear = self.on(1, "python3");
        ear.args(["-c", EAR]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ear = ear.spawn().expect("it runs");
        let mut lines = BufReader::new(ear.stdout.take().expect("a pipe")).lines();
        if lines.next().is_none_or(|line| line.ok().as_deref() != Some("ready")) {
            skip(CheckNeeds::Tool, "python3 does not read the cable between namespaces");
            let _ = ear.kill();
            let _ = ear.wait();
            return None;
        }
        run();
        drop(ear.stdin.take());
        let seen = lines.next().expect("an answer").expect("text");
        ear.wait().expect("it ends");
        Some(seen.split(' ').map(|seen| seen == "True").collect())
    }

    /// Runs a call of three ranks, which meet at the first host's name: rank 1 on the second host, the others on the
    /// first, so that each host connects to ranks of the other.
    fn sum(&self) {
        let store = format!("first:{}", port());
        let start = |rank: usize| {
            let host = rank % 2;
            let number = rank.to_string();
            let mut rank = self.on(host, env!("CARGO_BIN_EXE_roundelay"));
            rank.args(["run", "all_reduce.ring", "--bytes", "64K", "--iters", "2", "--json"]);
            rank.args(["--timeout", "30s", "--size", "3", "--rank", &number]);
            rank.args(["--store", &store]).stdin(Stdio::null());
            rank.env_remove("ROUNDELAY_HINTS").env("ROUNDELAY_TUNED", "");
            rank.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank")
        };
        let ranks = [0, 1, 2].map(start);
        let ranks = ranks.map(|rank| RunOutput::of(rank.wait_with_output().expect("its output")));
        let texts = ranks.each_ref().map(|ran| format!("{}\n{}\n", ran.out, ran.err)).concat();
        assert_eq!(ranks.each_ref().map(|ran| ran.code), [0, 0, 0], "{texts}");
        let rows = ranks[0].json();
        assert_eq!(rows.len(), 1, "{texts}");
        assert!(rows[0]["wrong"] == 0 && rows[0]["transport"] == "shm+tcp", "{texts}");
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for host in 0..2 {
            let _ = ip(&format!("netns del {}h{host}", self.name));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn ranks_meet_where_sockets_of_ipv6_are_of_ipv6_alone() {
    let Some(hosts) = TwoHosts::new([NAMES, NAMES], &[]) else { return };
    hosts.set("net.ipv6.bindv6only=1");
    hosts.sum();
}

#[test]
fn ranks_meet_where_the_own_name_is_loopback_and_nothing_leads_outward() {
    let Some(hosts) = TwoHosts::new([OWN_NAME_IS_LOOPBACK, NAMES], &[]) else { return };
    hosts.sum();
}

#[test]
fn ranks_meet_where_the_way_outward_is_another_network() {
    let management = [
        "link add mgmt type veth peer name mgmt2",
        "link set mgmt2 up",
        "addr add 192.168.99.1/24 dev mgmt",
        "link set mgmt up",
        "route add default via 192.168.99.254",
    ];
    let Some(hosts) = TwoHosts::new([OWN_NAME_IS_LOOPBACK, NAMES], &management) else { return };
    hosts.sum();
}

/// The words that begin every message to a store, and every connection between ranks, in the clear.
const PLAIN_WORDS: [&str; 2] = ["rndlst", "rndelay"];

#[test]
fn a_secret_encrypts_what_two_hosts_send_unless_that_is_turned_off() {
    let Some(hosts) = TwoHosts::new([NAMES, NAMES], &[]) else { return };
    let secret = ("ROUNDELAY_SECRET", "0123456789abcdef");
    let hint = |hint| ("ROUNDELAY_HINTS", hint);
    let off = hint("encryption=off");
    let call = &["run", "all_reduce.ring", "--bytes", "64K", "--iters", "2"];
    for (variables, is_plain) in [
        (&[secret][..], false),
        (&[secret, hint("encryption=auto")], false),
        (&[secret, hint("encryption=required")], false),
        (&[secret, off], true),
        (&[], true),
    ] {
        let run = || hosts.both(call, [variables; 2]).map(|ran| drop(ran.ok()));
        let Some(found) = hosts.overhear(&PLAIN_WORDS, || {
            run();
        }) else {
            return;
        };
        assert_eq!(found, [is_plain; 2], "{variables:?}");
        let routes = hosts.both(&["route"], [variables; 2]).map(|ran| ran.ok().out);
        assert_eq!(routes.concat().contains("encrypted"), !is_plain, "{variables:?}: {routes:?}");
    }
    for variables in
        [[&[secret][..], &[secret, off]], [&[secret, off], &[secret]], [&[secret], &[]]]
    {
        let [zero, one] = hosts.both(call, variables);
        one.fails(3, &["one side encrypts and the other does not", "hint `encryption`"]);
        zero.fails(3, &["rank 1 has not come"]);
    }
}

/// A connection that has ended keeps its port for a minute, but not from those who listen.
#[test]
fn jobs_that_follow_each_other_do_not_run_out_of_ports() {
    // Of 64 ports the system has none to choose after 12 jobs.
    const JOBS: usize = 16;
    let Some(hosts) = TwoHosts::new([NAMES, NAMES], &[]) else { return };
    hosts.set("net.ipv4.ip_local_port_range=50000 50063");
    for _ in 0..JOBS {
        let mut job = hosts.on(0, env!("CARGO_BIN_EXE_roundelay"));
        job.args(["run", "all_reduce.ring", "-n", "4", "--hosts", "2", "--bytes", "1K"]);
        job.args(["--iters", "1", "--hint", "transport=tcp", "--timeout", "30s"]);
        job.env_remove("ROUNDELAY_HINTS").env("ROUNDELAY_TUNED", "");
        RunOutput::of(job.output().expect("it runs")).ok();
    }
}

/// The column `transport` names what carries the data, also where ranks of one host cannot read each other's memory:
/// the bytes on the host's loopback say which it was.
#[test]
fn the_transport_is_what_carries_the_data_where_memory_cannot_be_shared() {
    const BYTES: u64 = 1 << 20;
    const CALLS: u64 = 20;
    let Some(hosts) = TwoHosts::new([NAMES, NAMES], &[]) else { return };
    let user = &["setpriv", "--reuid", "1", "--regid", "1", "--clear-groups"][..];
    let other = &["setpriv", "--reuid", "2", "--regid", "2", "--clear-groups"][..];
    let program = env!("CARGO_BIN_EXE_roundelay");
    let run = hosts.on(0, user[0]).args(&user[1..]).args([program, "--version"]).output();
    if run.is_ok_and(|run| !run.status.success()) {
        return skip(CheckNeeds::Namespaces, format!("other users cannot run {program}"));
    }
    let namespace = &["unshare", "-U", "-r"][..];
    for (prefixes, expected) in [
        (&[&[][..], &[]][..], Some("shm")),
        (&[&[], user], Some("tcp")),
        (&[other, user], Some("tcp")),
        (&[&[], &[], user], Some("shm+tcp")),
        // Whether memory can be shared with another namespace is up to the system.
        (&[&[], namespace], None),
    ] {
        let before = hosts.loopback();
        let store = format!("127.0.0.1:{}", port());
        let size = prefixes.len().to_string();
        let start = |(rank, prefix): (usize, &&[&str])| {
            let words = [*prefix, &[program]].concat();
            let mut command = hosts.on(0, words[0]);
            command.args(&words[1..]).args(["run", "all_reduce.ring", "--json", "--warmup", "0"]);
            command.args(["--bytes", &BYTES.to_string(), "--iters", &CALLS.to_string()]);
            command.args(["--timeout", "60s", "--size", &size, "--rank", &rank.to_string()]);
            command.args(["--store", &store]).stdin(Stdio::null());
            command.env_remove("ROUNDELAY_HINTS").env("ROUNDELAY_TUNED", "");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank")
        };
        let ranks: Vec<_> = prefixes.iter().enumerate().map(start).collect();
        let ended = ranks.into_iter().map(|rank| rank.wait_with_output().expect("its output"));
        let ranks: Vec<RunOutput> = ended.map(RunOutput::of).collect();
        let texts: String = ranks.iter().map(|ran| format!("{}\n{}\n", ran.out, ran.err)).collect();
        if expected.is_none() && texts.contains("unshare failed") {
            skip(CheckNeeds::Namespaces, "user namespaces cannot be made here");
            continue;
        }
        assert!(ranks.iter().all(|ran| ran.code == 0), "{prefixes:?}: {texts}");
        let row = ranks[0].json().remove(0);
        let transport = row["transport"].as_str().expect("a transport");
        let went = hosts.loopback() - before;
        // A rank sends as much as the vector in each call, and next to nothing is said beside that.
        let over_tcp = went > BYTES * CALLS;
        assert_eq!(transport.contains("tcp"), over_tcp, "{prefixes:?}: {row}, {went} bytes");
        assert!(expected.is_none_or(|expected| transport == expected), "{prefixes:?}: {row}");
    }
}
