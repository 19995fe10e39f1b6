//! Tests `doctor --store`: ranks that are processes and share no memory, seen over the network.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::{RunOutput, command};
use roundelay::{Communicator, Error, RedOp};
use roundelay_tests::{port, test_arguments, until};
use serde_json::{Value, json};

const RANKS: u32 = 3;
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(300);
const SECRET: &str = "what the ranks know";

/// A job of processes, each on a host of its own as far as it knows; they end with it.
struct DoctorJob {
    store: String,
    ranks: Vec<Child>,
}

impl DoctorJob {
    /// Starts that many of the ranks; `scenario` says what they do, see [`rank`].
    fn start(scenario: &str, ranks: u32) -> DoctorJob {
        let store = format!("127.0.0.1:{}", port());
        let at = [("ROUNDELAY_SIZE", RANKS.to_string()), ("ROUNDELAY_STORE", store.clone())];
        DoctorJob::start_with(scenario, store, "ROUNDELAY_RANK", &at, ranks)
    }

    /// Starts that many of the ranks, which find their numbers and each other by those variables.
    fn start_with(
        scenario: &str,
        store: String,
        number: &str,
        more: &[(&str, String)],
        ranks: u32,
    ) -> DoctorJob {
        let start = |rank: u32| {
            Command::new(std::env::current_exe().expect("this test"))
                .args(test_arguments(module_path!(), "rank_process"))
                .env("DOCTOR_SCENARIO", scenario)
                .env(number, rank.to_string())
                .envs(more.iter().map(|(name, value)| (*name, value)))
                .env("ROUNDELAY_HOST", format!("host{rank}"))
                .env("ROUNDELAY_SECRET", SECRET)
                .env("ROUNDELAY_HINTS", "doctor=true,timeout=300s")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a process")
        };
        let ranks = (0..ranks).map(start).collect();
        DoctorJob { store, ranks }
    }

    fn doctor(&self, secret: &str, more: &[&str]) -> RunOutput {
        let mut command = command(&[&["doctor", "--store", &self.store], more].concat());
        let output = command.env("ROUNDELAY_SECRET", secret).output();
        RunOutput::of(output.expect("the binary runs"))
    }

    /// Asks until the verdict has these members, and returns the whole report: ranks come to their calls one after
    /// another, and a rank on its way is late too.
    #[track_caller]
    fn wait_for(&self, verdict: &Value) -> Value {
        let mut report = Value::Null;
        let wanted = verdict.as_object().expect("members");
        let last = RefCell::new(String::new());
        let seen =
            || format!("the verdict {verdict} does not come; the last answer: {}", last.borrow());
        until(FOREVER, seen, || {
            let ran = self.doctor(SECRET, &["--json", "--timeout", "60s"]);
            report = if ran.code == 0 { ran.json().remove(0) } else { Value::Null };
            *last.borrow_mut() = format!("{}{}", ran.out, ran.err);
            wanted.iter().all(|(name, value)| report["verdict"][name] == *value)
        });
        report
    }
}

impl Drop for DoctorJob {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Is a rank, if it was started as one.
#[test]
fn rank_process() {
    let Ok(scenario) = std::env::var("DOCTOR_SCENARIO") else { return };
    let _ = calls(&scenario);
    // It stays where it is, and makes no call.
    loop {
        std::thread::park();
    }
}

fn calls(scenario: &str) -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let (rank, mut data) = (comm.rank(), [1f32; 64]);
    comm.all_reduce(&mut data, RedOp::Sum)?;
    comm.all_reduce(&mut data, RedOp::Sum)?;
    let result = match (scenario, rank) {
        ("stuck", 1) => loop {
            std::thread::park();
        },
        // It comes last: after an abort a rank makes no call, and of two calls neither is the odd one.
        ("mismatch", 2) => {
            std::io::stdin().read_exact(&mut [0]).expect("the word to go on");
            comm.all_reduce(&mut data[..32], RedOp::Sum).map(drop)
        }
        _ => comm.all_reduce(&mut data, RedOp::Sum).map(drop),
    };
    // A rank that has failed is there still.
    if result.is_err() {
        loop {
            std::thread::park();
        }
    }
    result
}

#[test]
fn a_rank_that_does_something_else_is_named_and_so_is_its_death() {
    let mut job = DoctorJob::start("stuck", RANKS);
    let report = job.wait_for(&json!({"class": "late", "ranks": [1], "waiters": [0, 2]}));
    let [all] = &report["communicators"].as_array().expect("a list")[..] else {
        panic!("{report}")
    };
    assert_eq!(all["missing"], json!([]), "{report}");
    assert_eq!(all["ranks"].as_array().expect("a list").len(), RANKS as usize, "{report}");
    assert_eq!(report.get("silent"), None, "{report}");
    let text = job.doctor(SECRET, &[]).ok().out;
    assert!(text.contains("cause: rank 1 ") && text.contains("has not made call 3"), "{text}");

    // A client without the secret gets no answer.
    for wrong in ["", "another"] {
        let ran = job.doctor(wrong, &["--json"]).fails(3, &["secret", "ROUNDELAY_SECRET"]);
        assert!(!ran.out.contains("verdict"), "{}", ran.out);
    }

    let pid = job.ranks[2].id().cast_signed();
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("a signal is sent");
    let began = Instant::now();
    // Long enough for the others, who are there.
    let ran = job.doctor(SECRET, &["--json", "--timeout", "5s"]).ok();
    assert!(began.elapsed() < FOREVER / 2, "{:?}", began.elapsed());
    let report = ran.json().remove(0);
    assert_eq!(report["silent"][0]["rank"], 2, "{report}");
    assert_eq!(report["verdict"]["ranks"], json!([1]), "{report}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("a signal is sent");

    job.ranks[1].kill().and_then(|()| job.ranks[1].wait()).expect("its end");
    let report = job.wait_for(&json!({"class": "died", "ranks": [1]}));
    assert!(
        report["verdict"]["cause"].as_str().is_some_and(|c| c.contains("has ended")),
        "{report}"
    );

    let store = job.store.clone();
    drop(job);
    let job = DoctorJob { store, ranks: Vec::new() };
    job.doctor(SECRET, &[]).fails(3, &["RL0709", "no store listens", "doctor=true", "--pid"]);
}

#[test]
fn another_call_is_named() {
    let mut job = DoctorJob::start("mismatch", RANKS);
    job.wait_for(&json!({"class": "late", "ranks": [2], "waiters": [0, 1]}));
    let last = job.ranks[2].stdin.as_mut().expect("a pipe");
    last.write_all(b"!").expect("it is written");
    job.wait_for(&json!({"class": "mismatch", "ranks": [2]}));
}

/// The state of a store of torch's.
type StoreValues = BTreeMap<Vec<u8>, Vec<u8>>;

/// Serves what torch's store has, as its clients of PyTorch 2.2 and later speak, for as long as the test runs.
fn torch_store() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let values: Arc<(Mutex<StoreValues>, Condvar)> = Arc::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (values, stream) = (values.clone(), stream.expect("a connection"));
            std::thread::spawn(move || serve_torch(stream, &values));
        }
    });
    address
}

/// Answers the queries of one connection, until one is none.
fn serve_torch(
    mut stream: TcpStream,
    (values, changed): &(Mutex<StoreValues>, Condvar),
) -> Option<()> {
    let word = |stream: &mut TcpStream| {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).ok().map(|()| u64::from_ne_bytes(bytes))
    };
    let text = |stream: &mut TcpStream| {
        let mut bytes = vec![0; word(stream)? as usize];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let mut is_known = false;
    loop {
        let mut query = [0];
        stream.read_exact(&mut query).ok()?;
        match query[0] {
            0 => {
                let mut magic = [0; 4];
                stream.read_exact(&mut magic).ok()?;
                is_known = u32::from_ne_bytes(magic) == 0x3C85_F7CE;
            }
            // It takes other words for more of its own, and waits for the rest.
            _ if !is_known => {
                return std::io::copy(&mut stream, &mut std::io::sink()).ok().map(drop);
            }
            1 => {
                let (key, value) = (text(&mut stream)?, text(&mut stream)?);
                values.lock().ok()?.insert(key, value);
                changed.notify_all();
            }
            3 => {
                let value = values.lock().ok()?.get(&text(&mut stream)?).cloned()?;
                stream.write_all(&(value.len() as u64).to_ne_bytes()).ok()?;
                stream.write_all(&value).ok()?;
            }
            4 => {
                let (_, added) = (text(&mut stream)?, word(&mut stream)?);
                stream.write_all(&added.to_ne_bytes()).ok()?;
            }
            5 | 6 => {
                let (_, key) = (word(&mut stream)?, text(&mut stream)?);
                let mut values = values.lock().ok()?;
                while query[0] == 6 && !values.contains_key(&key) {
                    values = changed.wait(values).ok()?;
                }
                stream.write_all(&[u8::from(!values.contains_key(&key))]).ok()?;
            }
            _ => return None,
        }
    }
}

#[test]
fn torchs_store_says_where_the_ranks_are() {
    let address = torch_store();
    let none = DoctorJob { store: address.to_string(), ranks: Vec::new() };
    none.doctor(SECRET, &[]).fails(3, &["RL0709", "what answers at", "doctor=true"]);
    let at = [
        ("WORLD_SIZE", RANKS.to_string()),
        ("TORCHELASTIC_RUN_ID", "run".into()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", address.port().to_string()),
    ];
    let job = DoctorJob::start_with("stuck", address.to_string(), "RANK", &at, RANKS);
    job.wait_for(&json!({"class": "late", "ranks": [1]}));
    job.doctor("another", &[]).fails(3, &["secret"]);
}

#[test]
fn ranks_that_have_not_come_are_named() {
    let job = DoctorJob::start("stuck", RANKS - 1);
    let mut out = String::new();
    let seen = || "rank 2 is not missed".to_owned();
    until(FOREVER, seen, || {
        out = job.doctor(SECRET, &["--json"]).out;
        out.contains("rank 2 has not come") && !out.contains("rank 1")
    });
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["verdict"], Value::Null, "{report}");
    assert!(
        report["joining"].as_str().is_some_and(|j| j.contains("rank 2 has not come")),
        "{report}"
    );
    let text = job.doctor(SECRET, &[]).ok().out;
    assert!(text.contains("cause: the ranks have not all joined: rank 2 has not come"), "{text}");
}

#[test]
fn what_is_no_store_is_said_to_be_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let store = listener.local_addr().expect("an address").to_string();
    let hangs_up = std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            drop(stream);
        }
    });
    let job = DoctorJob { store, ranks: Vec::new() };
    job.doctor(SECRET, &["--timeout", "2s"]).fails(3, &["RL0709", "what answers at"]);
    let job = DoctorJob { store: "nowhere".into(), ranks: Vec::new() };
    job.doctor(SECRET, &[]).fails(1, &["RL0712", "not an address"]);
    drop(hangs_up);
}
