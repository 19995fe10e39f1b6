//! Tests two paths between hosts, one of which is cut, slowed or mended while ranks make calls. Hosts are
//! network namespaces: cables are pulled for real. Needs root; says so and ends where that is missing.

mod lab;
mod rank;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use lab::Lab;
use rank::ORDER;
use roundelay_tests::test_arguments;

/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(120);

/// Runs a rank of a job; not a test by itself.
#[test]
fn rank_process() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let status = match rank::run(&order) {
        Ok(()) => 0,
        Err(error) => {
            rank::say(&format!("error {error}"));
            3
        }
    };
    std::process::exit(status);
}

/// A call as the first rank reports it.
#[derive(Debug, Clone)]
struct Call {
    number: usize,
    time: Duration,
    divided: String,
}

/// Ranks on the hosts of a lab.
struct Job {
    children: Vec<Child>,
    said: Receiver<(usize, String)>,
    /// The lines that each rank printed.
    lines: Vec<Vec<String>>,
    began: Instant,
}

impl Job {
    /// Starts `a_host` ranks on each host.
    fn start(lab: &Lab, hosts: u32, a_host: u32, hints: &str, order: &str) -> Job {
        let this = std::env::current_exe().expect("this program");
        let (send, said) = channel();
        let mut children = Vec::new();
        for rank in 0..hosts * a_host {
            let mut command = lab.on(rank / a_host, &this);
            command.args(test_arguments(module_path!(), "rank_process"));
            command.env(ORDER, order).env("ROUNDELAY_HINTS", hints);
            command.env("ROUNDELAY_RANK", rank.to_string());
            command.env("ROUNDELAY_SIZE", (hosts * a_host).to_string());
            command.env("ROUNDELAY_STORE", "10.79.0.1:29400");
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("a rank");
            let out = child.stdout.take().expect("its output");
            let errors = child.stderr.take().expect("its errors");
            let (at, lines) = (rank as usize, send.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if lines.send((at, line)).is_err() {
                        return;
                    }
                }
                let mut text = String::new();
                let _ = BufReader::new(errors).read_to_string(&mut text);
                let _ = lines.send((at, format!("stderr {text}")));
            });
            children.push(child);
        }
        let lines = vec![Vec::new(); children.len()];
        Job { children, said, lines, began: Instant::now() }
    }

    /// Hears ranks until the first of them has said this.
    fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        loop {
            let left = FOREVER.saturating_sub(self.began.elapsed());
            let (rank, line) = self.said.recv_timeout(left).unwrap_or_else(|e| {
                panic!("nothing comes ({e}): {:#?}", self.tail());
            });
            let found = rank == 0 && wanted(&line);
            self.lines[rank].push(line);
            if found {
                return;
            }
        }
    }

    /// Hears the first rank end a call.
    fn until_call(&mut self, number: usize) {
        self.until(|line| line.starts_with(&format!("call {number} ")));
    }

    fn tail(&self) -> Vec<Vec<String>> {
        let tail = |lines: &Vec<String>| lines[lines.len().saturating_sub(4)..].to_vec();
        self.lines.iter().map(tail).collect()
    }

    /// Hears all ranks to their ends; says whether all went well.
    fn end(&mut self) -> bool {
        while let Ok((rank, line)) =
            self.said.recv_timeout(FOREVER.saturating_sub(self.began.elapsed()))
        {
            self.lines[rank].push(line);
            if self.lines.iter().all(|l| l.iter().any(|line| line.starts_with("stderr "))) {
                break;
            }
        }
        let failed = |child: &mut Child| !child.wait().is_ok_and(|status| status.success());
        // Waits for all, not only up to the first that failed.
        self.children.iter_mut().map(failed).filter(|&failed| failed).count() == 0
    }

    /// Returns the calls of the first rank.
    fn calls(&self) -> Vec<Call> {
        let call = |line: &String| {
            let mut words = line.strip_prefix("call ")?.splitn(3, ' ');
            let (number, micros) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let divided = words.next().unwrap_or_default().to_owned();
            Some(Call { number, time: Duration::from_micros(micros), divided })
        };
        self.lines[0].iter().filter_map(call).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.children {
            // They have ended, unless the test failed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// 4 MiB in f32.
const COUNT: usize = 1 << 20;
const TWO: &str = "paths=rail0,rail1,timeout=20s";

fn order(calls: usize) -> String {
    format!("multipath 2 {COUNT} {calls}")
}

/// Makes calls while something happens to a path, and makes sure that all of them are right.
fn survives(hosts: u32, a_host: u32, what: &dyn Fn(&Lab, &mut Job)) {
    let Some(lab) = Lab::new(hosts, &[1000, 500]) else { return };
    let mut job = Job::start(&lab, hosts, a_host, TWO, &order(60));
    job.until_call(3);
    what(&lab, &mut job);
    assert!(job.end(), "{:#?}", job.tail());
    assert_eq!(job.calls().len(), 60, "{:#?}", job.tail());
}

#[test]
fn a_path_whose_link_goes_down_is_left() {
    for path in [0, 1] {
        survives(2, 1, &|lab, job| {
            lab.set_link(1, path, "down");
            job.until(|line| line.contains("(lost)"));
        });
    }
}

#[test]
fn a_path_that_drops_everything_is_left_and_taken_again() {
    for path in [0, 1] {
        survives(2, 1, &|lab, job| {
            lab.drop_silently(0, path);
            job.until(|line| line.contains("(lost)"));
            lab.mend(0, path);
            // It may be mended only after the last call: then nothing more is asked.
            job.until(|line| line.starts_with("call ") && !line.contains("(lost)"));
        });
    }
}

#[test]
fn two_ranks_on_each_of_two_hosts_go_on() {
    survives(2, 2, &|lab, job| {
        lab.drop_silently(1, 0);
        job.until(|line| line.contains("(lost)"));
    });
}

#[test]
fn without_any_path_the_error_names_each() {
    let Some(lab) = Lab::new(2, &[1000, 500]) else { return };
    let hints = "paths=rail0,rail1,timeout=6s";
    let mut job = Job::start(&lab, 2, 1, hints, &order(10_000));
    job.until_call(3);
    let cut = Instant::now();
    lab.drop_silently(0, 0);
    lab.drop_silently(0, 1);
    assert!(!job.end());
    assert!(cut.elapsed() < Duration::from_secs(30), "{:?}", cut.elapsed());
    let errors = job.lines.iter().map(|lines| lines.iter().find(|l| l.starts_with("error ")));
    let errors: Vec<&String> = errors.flatten().collect();
    assert_eq!(errors.len(), 2, "{:#?}", job.tail());
    // Who had sent all before and only waits knows of no path: it names whom it waits for.
    let names = |e: &str| e.contains("no path to it is left") && e.contains("rail0: ");
    let named = errors.iter().filter(|e| names(e) && e.contains("rail1: ")).count();
    let waited = errors.iter().filter(|e| e.contains("waited 6s for ")).count();
    assert!(named >= 1 && named + waited == 2, "{errors:?}");
}

#[test]
fn a_killed_peer_is_named_over_two_paths() {
    let Some(lab) = Lab::new(2, &[1000, 500]) else { return };
    let mut job = Job::start(&lab, 2, 1, TWO, &order(10_000));
    job.until_call(3);
    job.children[1].kill().expect("it runs");
    let killed = Instant::now();
    assert!(!job.end());
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    let error = job.lines[0].iter().find(|line| line.starts_with("error ")).expect("an error");
    let how = error.contains("it closed the") || error.contains("it reset the");
    assert!(error.contains("rank 1 is gone") && how, "{error}");
}

#[test]
fn different_paths_are_an_error_that_names_them() {
    let Some(lab) = Lab::new(1, &[0, 0]) else { return };
    let this = std::env::current_exe().expect("this program");
    let start = |rank: u32, hints: &str| {
        let mut command = lab.on(0, &this);
        command.args(test_arguments(module_path!(), "rank_process"));
        command.env(ORDER, order(1)).env("ROUNDELAY_HINTS", hints);
        command.env("ROUNDELAY_RANK", rank.to_string()).env("ROUNDELAY_SIZE", "2");
        command.env("ROUNDELAY_STORE", "10.79.0.1:29400").stdout(Stdio::piped());
        command.spawn().expect("a rank")
    };
    let first = start(0, "paths=rail0,rail1");
    let second = start(1, "paths=rail0");
    let text = |child: Child| {
        let output = child.wait_with_output().expect("its output");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (first, second) = (text(first), text(second));
    let differs = |text: &str| text.contains("rail0,rail1") && text.contains("different paths");
    assert!(differs(&first) || differs(&second), "{first}\n{second}");
    let wrong = text(start(0, "paths=rail0,rail9"));
    assert!(wrong.contains("path `rail9`") && wrong.contains("rail1"), "{wrong}");
}

/// Measures what `TEST_PATHS_MEASURE` asks for, for `tests/paths.sh`; not a check.
#[test]
fn measure() {
    let Ok(what) = std::env::var("TEST_PATHS_MEASURE") else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let rates: Vec<u32> = words[0].split(',').filter_map(|w| w.parse().ok()).collect();
    let lab = Lab::new(2, &rates).expect("root");
    let names: Vec<String> = (0..rates.len()).map(|p| format!("rail{p}")).collect();
    // A plan of one path is measured as it is executed without others: over a plain socket.
    let hints = match words[3] {
        "1" => "interface=rail0,timeout=20s".into(),
        _ => format!("paths={},timeout=20s", names.join(",")),
    };
    let mut job = Job::start(&lab, 2, 1, &hints, &words[2..].join(" "));
    if let Some((call, rate)) = words[1].split_once(':') {
        job.until_call(call.parse().expect("a call"));
        match rate {
            "cut" => lab.drop_silently(0, 0),
            rate => {
                let rate = rate.parse().expect("a rate");
                assert!((0..2).all(|host| lab.limit(host, 0, rate)));
            }
        }
    }
    let well = job.end();
    for call in job.calls() {
        rank::say(&format!("{} {} {}", call.number, call.time.as_micros(), call.divided));
    }
    assert!(well, "{:#?}", job.tail());
}
