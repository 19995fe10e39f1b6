//! Tests where the ranks of a job listen: at the interface and the ports that hints name, and nowhere else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::roundelay;
use roundelay::launch::JobSetup;
use roundelay::{Communicator, Error, Hints};
use roundelay_tests::{held_ports, listeners, port_range, test_arguments};

/// The hints of the ranks, for the process that has them.
const HINTS: &str = "PORTS_HINTS";
/// The beginning of the line that the process of the ranks prints.
const FOUND: &str = "found: ";

/// Is two ranks, if it was started as such: prints the note by which rank 0 was found, or its error, and waits.
#[test]
fn ranks_process() {
    let Ok(hints) = std::env::var(HINTS) else { return };
    let hints: Hints = hints.parse().expect("hints");
    let setup = JobSetup::default().hints(&hints).timeout(Duration::from_secs(300));
    let (passed, note) = channel();
    let (setup, published) = (&setup, passed.clone());
    let joined = std::thread::scope(|scope| {
        let zero = scope.spawn(move || {
            Communicator::join_with(0, 2, setup, |note| {
                let note = note.expect("the note of rank 0").to_owned();
                passed.send(note.clone()).expect("rank 1");
                Ok(note)
            })
        });
        drop(published);
        let late = |_| Error::Start("rank 0 gave no note".into());
        let mut known = None;
        let one = Communicator::join_with(1, 2, setup, |_| {
            let note = note.recv().map_err(late)?;
            known = Some(note.clone());
            Ok(note)
        });
        zero.join().expect("no panic").and_then(|zero| Ok((zero, one?, known)))
    });
    let text = match &joined {
        Ok((.., note)) => note.clone().unwrap_or_default(),
        Err(error) => error.to_string(),
    };
    writeln!(std::io::stdout(), "{FOUND}{text}").expect("a pipe");
    let _ = std::io::stdin().read(&mut [0]);
}

/// A process with two ranks, which ends with this.
struct ListeningRank {
    child: Child,
    /// The lines that it has printed.
    found: String,
}

impl ListeningRank {
    fn with(hints: &str) -> ListeningRank {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(test_arguments(module_path!(), "ranks_process")).env(HINTS, hints);
        command.env_remove("ROUNDELAY_HINTS").env_remove("ROUNDELAY_SECRET");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let found = lines.find_map(|line| {
            let line = line.expect("a line");
            line.split_once(FOUND).map(|(_, text)| text.to_owned())
        });
        ListeningRank { child, found: found.expect("the ranks say where they are") }
    }

    /// Returns the addresses of the store, as rank 0 gave them to the others.
    fn store(&self) -> Vec<SocketAddr> {
        let (_, ways) = self.found.split_once(';').unwrap_or_else(|| panic!("{}", self.found));
        ways.split(',').map(|way| way.parse().expect("an address")).collect()
    }
}

impl Drop for ListeningRank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if a process listens at that port of another address of this host's loopback.
fn is_open_elsewhere(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), port)).is_ok()
}

#[test]
fn ranks_listen_at_the_interface_and_the_ports_of_hints_alone() {
    // The store, and for each rank its own socket and the one that answers the doctor.
    const SOCKETS: usize = 1 + 2 * 2;
    for interface in [Some("127.0.0.1"), Some("lo"), None] {
        let range = port_range();
        let named = interface.map_or(String::new(), |name| format!(",interface={name}"));
        let hints =
            format!("doctor=true,transport=tcp,ports={}-{}{named}", range.start(), range.end());
        let ranks = ListeningRank::with(&hints);
        let own = listeners(ranks.child.id());
        let store = ranks.store();
        assert_eq!(own.len(), SOCKETS, "{own:?}");
        assert!(own.iter().all(|at| range.contains(&at.port())), "{hints}: {own:?}");
        if interface.is_some() {
            let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
            assert!(own.iter().all(|at| at.ip() == loopback), "{hints}: {own:?}");
            assert!(store.iter().all(|at| own.contains(at)), "{store:?}, {own:?}");
            let open = own.iter().find(|at| is_open_elsewhere(at.port()));
            assert_eq!(open, None, "{hints}");
        } else {
            // Where no interface is named, others come to the store by any address.
            assert!(store.iter().all(|at| is_open_elsewhere(at.port())), "{store:?}");
        }
    }
}

#[test]
fn a_range_without_a_free_port_is_an_error_that_names_it() {
    let (first, _held) = held_ports();
    let range = format!("{first}-{}", first + 1);
    let text = format!("all ports of the range {range} are taken (hint `ports`)");
    // The store of rank 0.
    for interface in ["", ",interface=127.0.0.1"] {
        let ranks = ListeningRank::with(&format!("transport=tcp,ports={range}{interface}"));
        let found = &ranks.found;
        assert!(found.contains("rank 0 cannot listen") && found.contains(&text), "{found}");
    }
    // The sockets of the ranks themselves: the launcher serves the store in another way.
    let hint = format!("ports={range}");
    let args = ["run", "all_reduce.ring", "-n", "2", "--transport", "tcp", "--hint", &hint];
    roundelay(&[&args[..], &["--bytes", "1K"]].concat())
        .fails(3, &["ranks cannot be reached at", &text]);
}
