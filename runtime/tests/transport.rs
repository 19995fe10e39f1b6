//! Tests endpoints: memory of single peers without a communicator, in one process and in two, over shared memory,
//! TCP and RDMA; refusals of what is forged, revoked or outside; ends.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::support::scene::{self, Job, say};
use crate::support::until_stopped;
use roundelay::Error;
use roundelay::endpoint::{Endpoint, EndpointLink, RegisteredRegion, RemoteRegion};
use roundelay::error::AccessRefusal;
use roundelay::launch::{JobSetup, ProcessEnding, RankLauncher};
use roundelay::memory::MemoryBool;
use roundelay::transport::{Transport, TransportSet};
use roundelay::window::WindowRights;
use roundelay_dsl::diag::codes;
use roundelay_tests::{CheckNeeds, skip};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// No test comes near it unless something hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Returns what carries links here: RDMA too, where there is a device. `TEST_WAY=rdma` leaves out the others.
pub(crate) fn ways() -> Vec<TransportSet> {
    static RDMA: LazyLock<bool> = LazyLock::new(|| {
        let probed = Transport::Rdma.probe();
        probed.inspect_err(|why| skip(CheckNeeds::Rdma, format!("no RDMA: {why}"))).is_ok()
    });
    let only = std::env::var("TEST_WAY").ok();
    let all = [TransportSet::SHM, TransportSet::TCP, TransportSet::RDMA];
    let is_wanted = |way: &TransportSet| only.as_ref().is_none_or(|only| way.to_string() == *only);
    let is_there = |way: &TransportSet| *way != TransportSet::RDMA || *RDMA;
    all.into_iter().filter(|way| is_wanted(way) && is_there(way)).collect()
}

fn setup(way: TransportSet) -> JobSetup {
    // Shared memory alone has no way to other machines, and no rank is on one here.
    JobSetup::new().transports(way).interface("127.0.0.1").timeout(LONG)
}

pub(crate) fn bind(way: TransportSet) -> Endpoint {
    Endpoint::bind(&setup(way)).expect("an endpoint")
}

/// Connects two endpoints.
pub(crate) fn connect(a: &Endpoint, b: &Endpoint) -> (EndpointLink, EndpointLink) {
    let (to_b, to_a) = (a.connect_async(&b.address(), LONG), b.connect_async(&a.address(), LONG));
    (to_b.wait().expect("a link"), to_a.wait().expect("a link"))
}

pub(crate) fn pair(way: TransportSet) -> (Endpoint, Endpoint, EndpointLink, EndpointLink) {
    let (a, b) = (bind(way), bind(way));
    let (to_b, to_a) = connect(&a, &b);
    for link in [&to_b, &to_a] {
        assert_eq!(link.transports(), way);
        assert!(link.is_open());
    }
    (a, b, to_b, to_a)
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> AccessRefusal {
    match result.expect_err("refused") {
        Error::Window { refusal, .. } => refusal,
        other => panic!("another error: {other}"),
    }
}

fn numbers(len: usize, salt: u64) -> Vec<u64> {
    (0..len as u64).map(|i| (i + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

#[test]
fn what_is_written_is_there_and_is_read_back() {
    for way in ways() {
        let (_a, b, to_b, to_a) = pair(way);
        // One registered before a link knows, and one long one whose bytes come in pieces.
        for (turn, len) in (0u64..).zip([0usize, 1, 3, 1000, 1 << 20, (9 << 20) / 8 + 5]) {
            let region = b
                .register(vec![0u64; len], WindowRights::READ | WindowRights::WRITE)
                .expect("a region");
            let there = to_b.region(&region.key()).expect("the key");
            assert_eq!((there.len(), region.len()), (8 * len, 8 * len));
            let data = numbers(len, turn);
            there.put_signal(&data, 0, turn).expect("a write");
            assert_eq!(to_a.wait_signal(LONG), Ok(Some(turn)));
            let mut back = vec![1u64; len];
            there.get(&mut back, 0).expect("a read");
            assert_eq!(back, data);
            if len >= 3 {
                there.put(&[7u64], 8).expect("a write");
                // Bytes at any place, of any length.
                there.put(&[9u8; 3], 21).expect("a write");
                let mut odd = [0u8; 5];
                there.get(&mut odd, 19).expect("a read");
                assert_eq!(odd[2..], [9; 3]);
                let mut own = [0u8; 8];
                region.read(8, &mut own).expect("its own");
                assert_eq!(u64::from_ne_bytes(own), 7);
            }
            let buffer = region.revoke().expect("the buffer");
            assert_eq!(buffer.first(), data.first());
        }
    }
}

#[test]
fn work_in_the_background_brings_its_buffers_back() {
    for way in ways() {
        let (_a, b, to_b, to_a) = pair(way);
        let region = b
            .register(vec![0u8; 6 << 20], WindowRights::READ | WindowRights::WRITE)
            .expect("a region");
        let there = to_b.region(&region.key()).expect("the key");
        let writes: Vec<_> = (0..6u8)
            .map(|i| there.put_signal_async(vec![i + 1; 1 << 20], u64::from(i) << 20, i.into()))
            .collect();
        for (i, write) in writes.into_iter().enumerate() {
            assert_eq!(write.wait().expect("a write").len(), 1 << 20);
            assert_eq!(to_a.wait_signal(LONG), Ok(Some(i as u64)));
        }
        let read = there.get_async(vec![0u8; 6 << 20], 0).wait().expect("a read");
        assert!(read.chunks(1 << 20).zip(1u8..).all(|(part, i)| part.iter().all(|&x| x == i)));
        assert_eq!(read, region.revoke().expect("the buffer"));
        let late = there.put_async(vec![1u8; 8], 0).wait();
        assert_eq!(refusal(late), AccessRefusal::Gone);
    }
}

#[test]
fn both_sides_write_at_once() {
    for way in ways() {
        let (a, b, to_b, to_a) = pair(way);
        let mine = a.register(vec![0u64; 5000], WindowRights::WRITE).expect("a region");
        let theirs = b.register(vec![0u64; 5000], WindowRights::WRITE).expect("a region");
        let (mine_key, theirs_key) = (mine.key(), theirs.key());
        // Both links live until both sides have ended.
        let run = |link: &EndpointLink, key: Vec<u8>, salt: u64| {
            let there = link.region(&key).expect("the key");
            for round in 0..50 {
                there.put_signal(&numbers(5000, salt + round), 0, round).expect("a write");
                assert_eq!(link.wait_signal(LONG), Ok(Some(round)));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(&to_b, theirs_key, 100));
            scope.spawn(|| run(&to_a, mine_key, 900));
        });
        assert_eq!(mine.revoke().expect("the buffer"), numbers(5000, 949));
        assert_eq!(theirs.revoke().expect("the buffer"), numbers(5000, 149));
    }
}

#[test]
fn an_endpoint_has_several_links_and_serves_all_regions_on_each() {
    for way in ways() {
        let hub = bind(way);
        let early = hub.register(vec![1u8; 64], WindowRights::READ).expect("a region");
        let peers: Vec<Endpoint> = (0..3).map(|_| bind(way)).collect();
        let links: Vec<(EndpointLink, EndpointLink)> =
            peers.iter().map(|peer| connect(peer, &hub)).collect();
        let late = hub.register(vec![2u8; 64], WindowRights::READ).expect("a region");
        for (link, back) in &links {
            for (region, value) in [(&early, 1), (&late, 2)] {
                let mut data = [0u8; 64];
                link.region(&region.key())
                    .and_then(|there| there.get(&mut data, 0))
                    .expect("a read");
                assert_eq!(data, [value; 64]);
            }
            assert!(matches!(back.region(&early.key()), Err(Error::Usage(_))), "its own key");
        }
        // One of them ends, the others do not notice.
        links[0].0.close();
        let mut data = [0u8; 64];
        links[1].0.region(&late.key()).and_then(|there| there.get(&mut data, 0)).expect("a read");
        drop(early.revoke().expect("the buffer"));
        assert_eq!(late.revoke().expect("the buffer"), [2; 64]);
    }
}

#[test]
fn a_peer_whose_link_is_there_first_finds_every_region() {
    for way in ways() {
        for round in 0..10 {
            let (a, b) = (bind(way), bind(way));
            // The side that has many takes longest over its end of the link.
            let regions: Vec<_> = (0..200u8)
                .map(|i| b.register(vec![i; 8], WindowRights::READ).expect("a region"))
                .collect();
            let to_a = b.connect_async(&a.address(), LONG);
            let to_b = a.connect(&b.address(), LONG).expect("a link");
            for (region, i) in regions.iter().zip(0..200).rev().take(3) {
                let mut data = [0u8; 8];
                let read = to_b.region(&region.key()).and_then(|there| there.get(&mut data, 0));
                read.unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert_eq!(data, [i; 8]);
            }
            to_a.wait().expect("a link");
        }
    }
}

/// Returns a region of that key, with another number, length or rights.
pub(crate) fn forged(
    link: &EndpointLink,
    key: &[u8],
    change: impl Fn(&mut [u64; 4]),
) -> RemoteRegion {
    let mut words = [0u64; 4];
    for (word, bytes) in words.iter_mut().zip(key[4..].chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("a word"));
    }
    change(&mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    link.region(&[&key[..4], &bytes].concat()).expect("a key by its looks")
}

fn is_untouched(region: &RegisteredRegion<Vec<u8>>) -> bool {
    let mut own = vec![0; region.len()];
    region.read(0, &mut own).expect("its own");
    own.iter().all(|&byte| byte == 5)
}

#[test]
fn what_is_forged_outside_or_revoked_writes_nothing() {
    const LEN: usize = 100_000;
    for way in ways() {
        let (_a, b, to_b, _to_a) = pair(way);
        let write = b.register(vec![5u8; LEN], WindowRights::WRITE).expect("a region");
        let read = b.register(vec![5u8; LEN], WindowRights::READ).expect("a region");
        let none = b.register(vec![5u8; LEN], WindowRights::NONE).expect("a region");
        let words = b.register(vec![5u8; LEN], WindowRights::ATOMICS).expect("a region");
        // Honest ones are refused here, forged ones by the target.
        let honest = to_b.region(&write.key()).expect("the key");
        let end = AccessRefusal::Bounds { bytes: LEN as u64 };
        assert_eq!(refusal(honest.put(&[1u8; 8], LEN as u64 - 7)), end);
        assert_eq!(refusal(honest.put(&[1u8; 8], u64::MAX - 3)), end);
        assert!(matches!(refusal(honest.get(&mut [1u8; 8], 0)), AccessRefusal::Rights { .. }));
        for bytes in [8usize, 4096, 80_000] {
            let data = vec![1u8; bytes];
            for lie in [1u64, 1 << 63] {
                let other = forged(&to_b, &write.key(), |key| (key[1], key[3]) = (key[1] ^ lie, 7));
                assert_eq!(refusal(other.put(&data, 0)), AccessRefusal::Gone);
                let mut given = data.clone();
                assert_eq!(refusal(other.get(&mut given, 0)), AccessRefusal::Gone);
                assert_eq!(given, data, "something was given");
            }
            for at in [LEN as u64 - bytes as u64 + 1, LEN as u64, 1 << 62] {
                // Opened anew each time: a refusal stays.
                let longer = forged(&to_b, &write.key(), |key| key[2] = u64::MAX);
                assert_eq!(refusal(longer.put(&data, at)), end);
                drop(longer);
                let longer = forged(&to_b, &read.key(), |key| key[2] = u64::MAX);
                assert_eq!(refusal(longer.get(&mut data.clone(), at)), end);
            }
            for (region, has) in [(&read, "read"), (&none, "none"), (&words, "atomics")] {
                let bold = forged(&to_b, &region.key(), |key| key[3] = 7);
                let refused = AccessRefusal::Rights { needed: "write", has: has.into() };
                assert_eq!(refusal(bold.put(&data, 0)), refused);
            }
        }
        let all = [&write, &read, &none, &words];
        assert!(all.into_iter().all(is_untouched), "something was written");
        // The link is as good as before.
        drop(honest);
        let honest = to_b.region(&write.key()).expect("the key");
        honest.put(&[6u8; 8], 0).expect("a write");
        let mut buffer = write.revoke().expect("the buffer");
        assert_eq!(buffer[..9], [6, 6, 6, 6, 6, 6, 6, 6, 5]);
        buffer.fill(5);
        assert_eq!(refusal(honest.put(&[1u8; 8], 0)), AccessRefusal::Gone);
        assert_eq!(refusal(honest.put(&vec![1u8; LEN], 0)), AccessRefusal::Gone);
        assert!(buffer.iter().all(|&byte| byte == 5), "something was written");
        let key = read.key();
        drop(read);
        let gone = to_b.region(&key).expect("the key");
        assert_eq!(refusal(gone.get(&mut [0u8; 8], 0)), AccessRefusal::Gone);
    }
}

#[test]
fn a_close_ends_the_waits_of_other_threads() {
    for way in ways() {
        for of_endpoint in [false, true] {
            let (a, b, to_b, to_a) = pair(way);
            let region = b.register(vec![0u8; 8], WindowRights::WRITE).expect("a region");
            let there = to_b.region(&region.key()).expect("the key");
            there.put(&[1u8; 8], 0).expect("a write");
            let began = Instant::now();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| to_b.wait_signal(LONG));
                // The peer has nothing to say; whether the wait has begun makes no difference.
                if of_endpoint {
                    a.close();
                } else {
                    to_b.close();
                }
                assert_eq!(refusal(waits.join().expect("a thread")), AccessRefusal::Over);
            });
            assert_eq!(refusal(there.put(&[2u8; 8], 0)), AccessRefusal::Over);
            assert_eq!(refusal(to_b.signal(1)), AccessRefusal::Over);
            assert!(!to_b.is_open());
            let error = to_a.wait_signal(LONG).expect_err("the peer has left");
            assert_eq!(error.code(), codes::LOST_RANK, "{error}");
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
            assert!(!to_a.is_open());
            assert_eq!(region.revoke().expect("the buffer"), [1; 8]);
            if of_endpoint {
                assert!(matches!(a.register(vec![0u8], WindowRights::READ), Err(Error::Usage(_))));
            }
        }
    }
}

#[test]
fn an_abort_ends_both_sides_with_its_cause() {
    for way in ways() {
        let (_a, b, to_b, to_a) = pair(way);
        let region = b.register(vec![0u8; 8], WindowRights::WRITE).expect("a region");
        let there = to_b.region(&region.key()).expect("the key");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| to_a.wait_signal(LONG));
            to_b.abort("the user pressed Ctrl-C");
            let error = waits.join().expect("a thread").expect_err("aborted");
            assert_eq!(error.code(), codes::ABORTED, "{error}");
            assert!(error.to_string().contains("pressed Ctrl-C"), "{error}");
        });
        let error = there.put(&[1u8; 8], 0).expect_err("aborted");
        assert_eq!(error.code(), codes::ABORTED, "{error}");
        assert_eq!(region.revoke().expect("the buffer"), [0; 8]);
    }
}

#[test]
fn a_wait_for_a_notification_ends_in_time_and_goes_on() {
    for way in ways() {
        let (_a, _b, to_b, to_a) = pair(way);
        assert_eq!(to_b.wait_signal(Duration::ZERO), Ok(None));
        assert_eq!(to_b.wait_signal(Duration::from_millis(20)), Ok(None));
        // More than may lie about: the sender waits until they are taken.
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| (0..300).try_for_each(|i| to_a.signal(i)));
            for i in 0..300 {
                assert_eq!(to_b.wait_signal(LONG), Ok(Some(i)));
            }
            sends.join().expect("a thread").expect("all were sent");
        });
        assert_eq!(to_b.wait_signal(Duration::ZERO), Ok(None));
    }
}

#[test]
fn an_empty_secret_is_an_error() {
    let text = Endpoint::bind(&JobSetup::new().secret("")).expect_err("no secret").to_string();
    assert!(text.contains("the secret is empty"), "{text}");
    let any_bytes = || Endpoint::bind(&setup(TransportSet::TCP).secret(vec![0xff, 0xfe, 0]));
    connect(&any_bytes().expect("an endpoint"), &any_bytes().expect("an endpoint"));
}

#[test]
fn whatever_bytes_arrive_are_truth_values() {
    let (a, b) = (bind(TransportSet::TCP), bind(TransportSet::TCP));
    let (to_b, to_a) = connect(&a, &b);
    let region = a
        .register(vec![MemoryBool::FALSE; 8], WindowRights::READ | WindowRights::WRITE)
        .expect("a region");
    let bytes = [0u8, 1, 2, 3, 128, 254, 255, 0];
    to_a.region(&region.key()).expect("a key").put(&bytes, 0).expect("written");
    let theirs = b.register(bytes.to_vec(), WindowRights::READ).expect("a region");
    let mut read = [MemoryBool::FALSE; 8];
    to_b.region(&theirs.key()).expect("a key").get(&mut read, 0).expect("read");
    let right = bytes.map(|byte| byte != 0);
    assert_eq!(read.map(bool::from), right);
    let back: Vec<MemoryBool> = region.revoke().expect("the buffer");
    assert_eq!(back, read);
    // An index made of a truth value stays within two.
    assert!(back.iter().all(|&value| [10, 20][usize::from(value.get())] > 0));
}

#[test]
fn another_secret_is_refused() {
    let with = |secret: Option<&str>| {
        let setup = setup(TransportSet::TCP).timeout(Duration::from_secs(20));
        let setup = secret.into_iter().fold(setup, |setup, secret| setup.secret(secret));
        Endpoint::bind(&setup).expect("an endpoint")
    };
    let same = (with(Some("a long secret")), with(Some("a long secret")));
    connect(&same.0, &same.1);
    // One side is refused, and the other waits to the end.
    let limit = Duration::from_secs(10);
    let pairs = [(Some("one"), Some("other")), (Some("one"), None), (None, Some("other"))];
    let begun = pairs.map(|(one, other)| {
        let (a, b) = (with(one), with(other));
        let both = [a.connect_async(&b.address(), limit), b.connect_async(&a.address(), limit)];
        (one, other, both)
    });
    for (one, other, both) in begun {
        let errors = both.map(|work| work.wait().expect_err("another secret").to_string());
        assert!(errors.iter().any(|e| e.contains("secret")), "{one:?} {other:?}: {errors:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let (a, b) = (bind(TransportSet::TCP), bind(TransportSet::TCP));
    let text = |peer: &[u8], limit| a.connect(peer, limit).expect_err("refused").to_string();
    for bad in [&b""[..], b"rl1", &[255; 9], &b.address()[1..], &b.address()[..20]] {
        assert!(text(bad, LONG).contains("not the address of an endpoint"));
    }
    assert!(text(&a.address(), LONG).contains("own address"));
    assert!(text(&b.address(), Duration::ZERO).contains("no time to connect"));
    let began = Instant::now();
    let alone = a.connect(&b.address(), Duration::from_millis(300)).expect_err("no peer comes");
    assert!(matches!(alone, Error::Timeout { .. } | Error::Start(_)), "{alone}");
    assert!(began.elapsed() < LONG / 2);
    assert!(text(&b.address(), LONG).contains("connect once"));
    // A close ends a wait for a peer.
    let c = bind(TransportSet::TCP);
    let waits = b.connect_async(&c.address(), LONG);
    b.close();
    assert!(waits.wait().expect_err("closed").to_string().contains("was closed"));
    assert!(began.elapsed() < LONG / 2);
}

// Two processes: each writes its address and keys to files of a folder that the test gives.

const FOLDER: &str = "TEST_FOLDER";

/// Leaves bytes for the other process.
pub(crate) fn leave(name: &str, bytes: &[u8]) {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let draft = folder.join(format!("{name}.draft"));
    std::fs::write(&draft, bytes)
        .and_then(|()| std::fs::rename(&draft, folder.join(name)))
        .expect("a file");
}

/// Takes what the other process leaves.
pub(crate) fn take(name: &str) -> Vec<u8> {
    let path = PathBuf::from(std::env::var_os(FOLDER).expect("a folder")).join(name);
    let until = Instant::now() + LONG;
    loop {
        match std::fs::read(&path) {
            Ok(bytes) => return bytes,
            Err(_) => assert!(Instant::now() < until, "the other process leaves no {name}"),
        }
        std::thread::yield_now();
    }
}

pub(crate) fn meet(side: usize, way: TransportSet) -> Result<(Endpoint, EndpointLink), Error> {
    let endpoint = Endpoint::bind(&setup(way))?;
    leave(&format!("address{side}"), &endpoint.address());
    let link = endpoint.connect(&take(&format!("address{}", 1 - side)), LONG)?;
    assert_eq!(link.transports(), way);
    Ok((endpoint, link))
}

fn run(scene: &str) -> Result<(), Error> {
    let side: usize = std::env::var("ROUNDELAY_RANK").expect("a rank").parse().expect("a number");
    let (name, way) = scene.split_once('/').expect("a scene and a way");
    let way = ways().into_iter().find(|known| known.to_string() == way).expect("a way");
    let (endpoint, link) = meet(side, way)?;
    match (name, side) {
        ("exchange", _) => {
            let region =
                endpoint.register(vec![0u64; 1 << 20], WindowRights::READ | WindowRights::WRITE)?;
            leave(&format!("key{side}"), &region.key());
            let there = link.region(&take(&format!("key{}", 1 - side)))?;
            there.put_signal(&numbers(1 << 20, side as u64), 0, 40 + side as u64)?;
            assert_eq!(link.wait_signal(LONG)?, Some(41 - side as u64));
            let mut back = vec![0; 1 << 20];
            there.get(&mut back, 0)?;
            assert_eq!(back, numbers(1 << 20, side as u64));
            // Neither leaves before both have read.
            link.signal(7)?;
            assert_eq!(link.wait_signal(LONG)?, Some(7));
            assert_eq!(region.revoke()?, numbers(1 << 20, 1 - side as u64));
            say("all is there");
        }
        ("killed", 1) => {
            let region =
                endpoint.register(vec![0u8; 8 << 20], WindowRights::READ | WindowRights::WRITE)?;
            leave("key1", &region.key());
            assert_eq!(link.wait_signal(LONG)?, Some(1));
            let _ = kill_process(getpid(), Signal::KILL);
        }
        ("killed", _) => {
            let there = link.region(&take("key1"))?;
            there.put(&vec![1u8; 8 << 20], 0)?;
            let began = Instant::now();
            link.signal(1)?;
            let error = loop {
                if let Err(error) = there.get(&mut vec![0u8; 8 << 20], 0) {
                    break error;
                }
            };
            assert_eq!(error.code(), codes::LOST_RANK, "{error}");
            assert!(link.wait_signal(LONG).is_err() && !link.is_open());
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
            say("it is gone");
        }
        ("stopped", 1) => {
            let region = endpoint.register(vec![0u8; 64], WindowRights::READ)?;
            leave("key1", &region.key());
            assert_eq!(link.wait_signal(LONG)?, Some(1));
            let _ = kill_process(getpid(), Signal::STOP);
            // Once it goes on, the link has ended, after what came before that.
            let error = loop {
                match link.wait_signal(LONG) {
                    Ok(came) => assert_eq!(came, Some(1), "the other side gave up"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), codes::TIMEOUT, "{error}");
        }
        ("stopped", _) => {
            let there = link.region(&take("key1"))?;
            there.get(&mut [0u8; 64], 0)?;
            link.signal(1)?;
            // Before that it is only slow, perhaps.
            let peer = i32::from_le_bytes(take("pid1").try_into().expect("a number"));
            until_stopped(u64::from(peer.cast_unsigned()));
            link.set_timeout(Duration::from_millis(500));
            // A device reads without the peer's process, which takes no notifications.
            let by_device = way == TransportSet::RDMA;
            let error = loop {
                let done = there.get(&mut [0u8; 64], 0);
                let done = if by_device { done.and_then(|()| link.signal(1)) } else { done };
                if let Err(error) = done {
                    break error;
                }
            };
            assert_eq!(error.code(), codes::TIMEOUT, "{error}");
            say("it does not answer");
            kill_process(Pid::from_raw(peer).expect("a process"), Signal::CONT)
                .expect("it goes on");
        }
        _ => return Err(Error::Usage(format!("there is no scene {name}"))),
    }
    Ok(())
}

#[test]
fn rank_process() {
    scene::rank(|scene| {
        let side = std::env::var("ROUNDELAY_RANK").expect("a rank");
        leave(&format!("pid{side}"), &std::process::id().to_le_bytes());
        run(scene)
    });
}

/// Runs a scene of a module by two processes with a folder of that name, and returns the job.
pub(crate) fn two(module: &str, name: &str, scene: &str) -> Job {
    let folder = std::env::temp_dir().join(format!("roundelay-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let launcher = RankLauncher::new(2).env(FOLDER, &folder);
    let job = Job::run(scene::scene(launcher, module, scene));
    std::fs::remove_dir_all(&folder).expect("the folder");
    job
}

fn run_two(name: &str, way: TransportSet) -> Job {
    two(module_path!(), &format!("{name}-{way}"), &format!("{name}/{way}"))
}

#[test]
fn two_processes_write_and_read() {
    for way in ways() {
        let Job { outcome, said, .. } = run_two("exchange", way);
        assert!(outcome.cause.is_none(), "{way}: {outcome:?} {said:?}");
        assert!(said.iter().all(|said| said.iter().any(|s| s == "all is there")), "{said:?}");
    }
}

#[test]
fn a_killed_peer_is_found_out() {
    for way in ways() {
        let Job { outcome, said, took } = run_two("killed", way);
        assert!(said[0].iter().any(|s| s == "it is gone"), "{way}: {outcome:?} {said:?}");
        assert!(
            matches!(outcome.endings[1], ProcessEnding::Signalled(9)),
            "{way}: {:?}",
            outcome.endings
        );
        assert!(took < LONG, "{took:?}");
    }
}

#[test]
fn a_stopped_peer_ends_a_wait_in_time() {
    for way in ways() {
        let Job { outcome, said, .. } = run_two("stopped", way);
        assert!(said[0].iter().any(|s| s == "it does not answer"), "{way}: {outcome:?} {said:?}");
        assert!(outcome.cause.is_none(), "{way}: {outcome:?} {said:?}");
    }
}
