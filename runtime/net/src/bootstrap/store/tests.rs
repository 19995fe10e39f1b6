//! The store over loopback: what must work, and what must not disturb it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::job::ServedJob;
use super::protocol::{HELLO, MAGIC, MAX_FRAME, StoreHello, StoreRequest, digest, push_frame};
use super::{ClientIdentity, StoreAddress, StoreClient, StoreListener, StoreServer};
use crate::store::Store;
use crate::tunables::{STORE_KEY_BYTES, STORE_VALUE_BYTES};
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::Error;

/// A timeout that no test comes near unless something hangs.
const FOREVER: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

fn forever() -> Instant {
    Instant::now() + FOREVER
}

fn serve(size: u32, secret: &[u8]) -> (StoreServer, StoreAddress) {
    serve_on(StoreListener::loopback().expect("loopback"), size, secret)
}

fn serve_on(listener: StoreListener, size: u32, secret: &[u8]) -> (StoreServer, StoreAddress) {
    serve_for(SHORT, listener, size, secret)
}

/// Serves a store that notifies late ranks of a failure for `timeout`.
fn serve_for(
    timeout: Duration,
    listener: StoreListener,
    size: u32,
    secret: &[u8],
) -> (StoreServer, StoreAddress) {
    let (digest, secret, encryption) = (digest("job"), secret.to_vec(), EncryptionMode::Off);
    let job =
        ServedJob { size, digest, secret, encryption, certificates: None, timeout, report: None };
    let server = StoreServer::start(listener, job).expect("a server");
    let at = StoreAddress::Any(server.address().into_iter().collect());
    (server, at)
}

fn connect(
    at: &StoreAddress,
    rank: u32,
    size: u32,
    secret: &[u8],
    timeout: Duration,
) -> Result<StoreClient, Error> {
    let me = ClientIdentity {
        rank,
        size,
        job: "job",
        secret,
        encryption: EncryptionMode::Off,
        certificates: None,
    };
    StoreClient::connect(at.clone(), me, timeout).map(StoreClient::patient)
}

fn client(at: &StoreAddress, rank: u32, size: u32) -> StoreClient {
    connect(at, rank, size, b"", FOREVER).expect("a client")
}

fn refused(result: Result<StoreClient, Error>) -> String {
    match result {
        Ok(_) => panic!("let in"),
        Err(error) => error.to_string(),
    }
}

/// Makes a raw connection that belongs to no job.
fn stranger(at: &StoreAddress) -> TcpStream {
    let stream = TcpStream::connect(at.addresses().expect("addresses")[0]).expect("a connection");
    stream.set_read_timeout(Some(FOREVER)).expect("a timeout");
    stream
}

/// Waits until the other side hangs up; what it sends before that is ignored.
fn hung_up(mut stream: TcpStream) {
    let mut buffer = [0; 256];
    while matches!(stream.read(&mut buffer), Ok(n) if n > 0) {}
}

#[test]
fn notes_are_read_before_and_after_they_are_left() {
    let families: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
    for family in families {
        let listener = match TcpListener::bind(family) {
            Ok(listener) => StoreListener::Tcp(listener),
            Err(e) => {
                assert!(family.is_ipv6(), "{e}");
                continue;
            }
        };
        let (_server, at) = serve_on(listener, 2, b"");
        let (mut zero, mut one) = (client(&at, 0, 2), client(&at, 1, 2));
        assert_eq!(zero.address(), family.ip());
        let early = thread::spawn(move || {
            let first = one.get("key", forever()).expect("a value");
            (first, one.get("empty", forever()).expect("a value"), one)
        });
        zero.set("empty", b"").expect("room");
        zero.set("key", b"value").expect("room");
        let (first, second, mut one) = early.join().expect("no panic");
        assert_eq!((first.as_slice(), second.as_slice()), (&b"value"[..], &b""[..]));
        one.set("key", b"other").expect("room");
        assert_eq!(zero.get("key", forever()).expect("a value"), b"other");
        let large = vec![7; STORE_VALUE_BYTES];
        one.set("large", &large).expect("room");
        assert_eq!(zero.get("large", forever()).expect("a value"), large);
    }
}

#[test]
fn sixty_four_meet_at_once_whoever_comes_first() {
    const N: u32 = 64;
    // No store listens there until some ranks have tried; no other test uses this address.
    let probe = TcpListener::bind("127.64.0.1:0").expect("a port");
    let address = probe.local_addr().expect("an address");
    drop(probe);
    let at = StoreAddress::Host("127.64.0.1".into(), address.port());
    thread::scope(|scope| {
        let ranks: Vec<_> = (1..N)
            .rev()
            .map(|rank| {
                let at = &at;
                scope.spawn(move || exchange(client(at, rank, N), rank, N))
            })
            .collect();
        let (digest, secret, encryption) = (digest("job"), Vec::new(), EncryptionMode::Off);
        let timeout = FOREVER;
        let job = ServedJob {
            size: N,
            digest,
            secret,
            encryption,
            certificates: None,
            timeout,
            report: None,
        };
        let server =
            StoreServer::start(StoreListener::bind(&at).expect("the port"), job).expect("a server");
        exchange(client(&at, 0, N).with(server), 0, N);
        for rank in ranks {
            rank.join().expect("no panic");
        }
    });
}

fn exchange(mut store: StoreClient, rank: u32, size: u32) {
    store.set(&format!("rank/{rank}"), &rank.to_le_bytes()).expect("room");
    for other in 0..size {
        let value = store.get(&format!("rank/{other}"), forever()).expect("a value");
        assert_eq!(value, other.to_le_bytes());
    }
    store.finish(forever()).expect("a farewell");
}

#[test]
fn a_name_on_this_host_serves_as_well() {
    let job = format!("test {}", std::process::id());
    let at = StoreAddress::Local(job.clone());
    let listener = StoreListener::bind(&at).expect("a name");
    assert!(StoreListener::bind(&at).is_err(), "the name is taken");
    let (server, _) = serve_on(listener, 2, b"s");
    let mut zero = connect(&at, 0, 2, b"s", FOREVER).expect("a client");
    let mut one = connect(&at, 1, 2, b"s", FOREVER).expect("a client");
    one.set("a", b"b").expect("room");
    assert_eq!(zero.get("a", forever()).expect("a value"), b"b");
    assert_eq!(zero.address(), IpAddr::from(Ipv4Addr::LOCALHOST));
    drop(server);
    assert!(one.set("a", b"b").is_err());
    drop(StoreListener::bind(&at).expect("the name is free again"));
}

#[test]
fn a_wait_in_vain_names_who_is_missing_and_spoils_nothing() {
    let (_server, at) = serve(4, b"");
    let (mut zero, one) = (client(&at, 0, 4), client(&at, 1, 4));
    for _ in 0..3 {
        let began = Instant::now();
        let error = zero.get("key", Instant::now() + SHORT).expect_err("it is not set").to_string();
        assert!(began.elapsed() >= SHORT && began.elapsed() < FOREVER / 2);
        assert!(error.contains("rank 0") && error.contains("`key`"), "{error}");
        assert!(error.contains("ranks 2, 3 have not come"), "{error}");
    }
    drop(one);
    // The server notices it in its own time.
    let deadline = forever();
    while !zero
        .get("key", Instant::now() + SHORT / 10)
        .expect_err("it is not set")
        .to_string()
        .contains("rank 1 has left")
    {
        assert!(Instant::now() < deadline);
    }
    zero.set("key", b"now").expect("room");
    assert_eq!(zero.get("key", forever()).expect("a value"), b"now");
    let mut two = client(&at, 2, 4);
    assert_eq!(two.get("key", forever()).expect("a value"), b"now");
}

#[test]
fn a_server_that_never_comes_is_given_up() {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = StoreAddress::Any(vec![probe.local_addr().expect("an address")]);
    drop(probe);
    let error = refused(connect(&at, 3, 4, b"", SHORT));
    assert!(error.contains("rank 3") && error.contains(&at.to_string()), "{error}");
    // Another program listens there and sends nothing, or nonsense.
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = StoreAddress::Any(vec![deaf.local_addr().expect("an address")]);
    let error = refused(connect(&at, 3, 4, b"", SHORT));
    assert!(error.contains("nothing there answered"), "{error}");
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in deaf.incoming().flatten() {
            let _ = stream.write_all(&[b'x'; 100]);
            open.push(stream);
        }
    });
    let error = refused(connect(&at, 3, 4, b"", SHORT));
    assert!(
        error.contains("no store of this version") || error.contains("nothing there"),
        "{error}"
    );
}

#[test]
fn nobody_enters_without_the_secret() {
    let (_server, at) = serve(2, b"secret");
    for other in [&b""[..], b"Secret", b"secret\0x"] {
        let error = refused(connect(&at, 1, 2, other, FOREVER));
        assert!(error.contains("ROUNDELAY_SECRET"), "{error}");
        assert!(!error.contains("secret\""), "{error}");
    }
    let mut one = connect(&at, 1, 2, b"secret", FOREVER).expect("a client");
    one.set("a", b"b").expect("room");
    // The other way round: a server without the secret gets nothing.
    let (_server, at) = serve(2, b"");
    let error = refused(connect(&at, 1, 2, b"secret", FOREVER));
    assert!(error.contains("ROUNDELAY_SECRET"), "{error}");
}

#[test]
fn a_server_that_only_pretends_is_found_out() {
    // It lets every client in, but has no proof.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = StoreAddress::Any(vec![listener.local_addr().expect("an address")]);
    let imposter = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello).expect("a hello");
        let challenge: Vec<u8> = MAGIC.into_iter().chain([1; 32]).collect();
        stream.write_all(&challenge).expect("a challenge");
        stream.read_exact(&mut [0; 32]).expect("a proof");
        stream.write_all(&[0; 37]).expect("a verdict");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end");
        rest
    });
    let error = refused(connect(&at, 1, 2, b"secret", FOREVER));
    assert!(error.contains("ROUNDELAY_SECRET"), "{error}");
    assert_eq!(imposter.join().expect("no panic"), b"", "no notice came");
}

#[test]
fn ranks_that_do_not_fit_are_refused_with_a_reason() {
    let (_server, at) = serve(2, b"");
    let zero = client(&at, 0, 2);
    let start = Instant::now();
    let taken = refused(connect(&at, 0, 2, b"", FOREVER));
    assert!(taken.contains("another process is rank 0"), "{taken}");
    let error = refused(connect(&at, 1, 3, b"", FOREVER));
    assert!(error.contains("counts 2 ranks") && error.contains("rank 1 of 3"), "{error}");
    assert!(start.elapsed() < FOREVER, "a final refusal was tried again");
    let encryption = EncryptionMode::Off;
    let me = ClientIdentity {
        rank: 1,
        size: 2,
        job: "other",
        secret: b"",
        encryption,
        certificates: None,
    };
    // It tries again until its deadline, since the store of an earlier job may be about to end.
    let start = Instant::now();
    let error = refused(StoreClient::connect(at.clone(), me, FOREVER / 30));
    assert!(error.contains("another job"), "{error}");
    assert!(start.elapsed() >= FOREVER / 60, "the store of another job was tried once");
    // A process that died without a word may be started again.
    drop(zero);
    let deadline = forever();
    while let Err(error) = connect(&at, 0, 2, b"", FOREVER) {
        assert!(error.to_string().contains("another process is rank 0"), "{error}");
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn garbage_disturbs_nobody() {
    let (_server, at) = serve(2, b"");
    let mut zero = client(&at, 0, 2);
    let (job, nonce) = (digest("job"), [0; 32]);
    let hello = StoreHello { rank: 1, size: 2, job, is_host_bound: false, nonce }.bytes();
    let mut newer = hello;
    newer[7] += 1;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let noise: Vec<u8> =
        (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bytes in [&request[..], &noise, &[0; 4096], &newer, &newer[..8]] {
        let mut stream = stranger(&at);
        // It may hang up before it has all.
        let _ = stream.write_all(bytes);
        hung_up(stream);
    }
    // Clients that send nothing, or half, or leave in the middle.
    let silent: Vec<TcpStream> = (0..20).map(|_| stranger(&at)).collect();
    for part in [&hello[..1], &hello[..79], &hello] {
        let mut stream = stranger(&at);
        stream.write_all(part).expect("room");
    }
    // A hello and then a wrong proof that is too long.
    let mut stream = stranger(&at);
    stream.write_all(&hello).expect("room");
    let _ = stream.write_all(&noise);
    hung_up(stream);
    let mut one = client(&at, 1, 2);
    one.set("key", b"value").expect("room");
    assert_eq!(zero.get("key", forever()).expect("a value"), b"value");
    drop(silent);
}

#[test]
fn a_frame_that_cannot_be_ends_its_connection_alone() {
    let (_server, at) = serve(2, b"");
    let mut zero = client(&at, 0, 2);
    let frame = |op: u8, parts: &[&[u8]]| {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, op, 1, parts);
        bytes
    };
    let huge = ((MAX_FRAME + 1) as u32).to_le_bytes();
    let cases: [Vec<u8>; 9] = [
        u32::MAX.to_le_bytes().to_vec(),
        huge.to_vec(),
        0u32.to_le_bytes().to_vec(),
        frame(0, &[]),
        frame(77, &[]),
        frame(StoreRequest::Set as u8, &[&[9]]),
        frame(StoreRequest::Set as u8, &[&[200, 0], b"too short"]),
        frame(StoreRequest::Get as u8, &[b""]),
        frame(StoreRequest::Get as u8, &[&[b'k'; STORE_KEY_BYTES + 1]]),
    ];
    for case in &cases {
        // The rank before it may not be gone yet.
        let deadline = forever();
        let one = loop {
            match connect(&at, 1, 2, b"", FOREVER) {
                Ok(one) => break one,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        let mut raw = one.into_stream();
        raw.write_all(case).expect("room");
        let mut rest = Vec::new();
        assert!(matches!(raw.read_to_end(&mut rest), Ok(0)), "{case:?}");
    }
    zero.set("key", b"value").expect("room");
    assert!(zero.set("", b"").is_err());
    assert!(zero.set(&"k".repeat(STORE_KEY_BYTES + 1), b"").is_err());
    assert!(zero.set("key", &vec![0; STORE_VALUE_BYTES + 1]).is_err());
    assert_eq!(zero.get("key", forever()).expect("a value"), b"value");
}

#[test]
fn a_store_has_a_bound() {
    let (_server, at) = serve(1, b"");
    let mut zero = client(&at, 0, 1);
    let value = vec![0; STORE_VALUE_BYTES];
    let error = (0..100).find_map(|i| zero.set(&format!("{i}"), &value).err());
    assert!(error.is_some_and(|e| e.to_string().contains("full")));
    // A value that is there can be replaced.
    zero.set("0", b"small").expect("room");
    assert_eq!(zero.get("0", forever()).expect("a value"), b"small");
}

fn three() -> [StoreClient; 3] {
    let (server, at) = serve(3, b"");
    [client(&at, 0, 3).with(server), client(&at, 1, 3), client(&at, 2, 3)]
}

/// Looks until there is something to see.
fn seen(store: &mut StoreClient) -> Error {
    let deadline = forever();
    loop {
        if let Some(error) = store.look() {
            return error;
        }
        assert!(Instant::now() < deadline, "no notice came");
        thread::yield_now();
    }
}

#[test]
fn all_have_joined_or_none_has() {
    for _ in 0..50 {
        // Rank 0 takes the store with it as soon as it has joined.
        let threads = three()
            .map(|mut store| thread::spawn(move || (store.finish(forever()), drop(store)).0));
        for thread in threads {
            thread.join().expect("no panic").expect("all have joined");
        }
    }
}

#[test]
fn who_does_not_answer_is_named() {
    let [mut zero, mut one, _two] = three();
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !over.load(order) {
                assert_eq!(one.look(), None);
                thread::yield_now();
            }
        });
        // Under load, who looks may be late too, and not only once.
        let deadline = forever();
        loop {
            let error = zero.finish(Instant::now() + SHORT / 10).expect_err("two are not done");
            let error = error.to_string();
            assert!(error.contains("2 do") && error.contains("not answer"), "{error}");
            if error.contains(": rank 2 does not answer") {
                break;
            }
            assert!(error.contains("ranks 1, 2 do not") && Instant::now() < deadline, "{error}");
        }
        over.store(true, order);
        looks.join().expect("no panic");
    });
}

#[test]
fn the_death_of_a_rank_that_others_know_of_is_told_to_all() {
    let [mut zero, mut one, mut two] = three();
    two.set("endpoint", b"its own").expect("room");
    drop(two);
    let is_notified = |error: Error, who| match error {
        Error::LostRank { rank, lost: 2, .. } => assert_eq!(rank, who),
        error => panic!("{error}"),
    };
    is_notified(seen(&mut zero), 0);
    is_notified(one.get("never", forever()).expect_err("it is never set"), 1);
    is_notified(one.finish(forever()).expect_err("one is missing"), 1);
    // Whatever it finds itself is a consequence.
    is_notified(zero.fail(Error::Start("no connection to rank 2".into())), 0);
}

#[test]
fn the_first_failure_is_what_all_report() {
    for _ in 0..20 {
        let listener = StoreListener::loopback().expect("loopback");
        let (server, at) = serve_for(FOREVER, listener, 3, b"");
        let (mut zero, mut one) = (client(&at, 0, 3).with(server), client(&at, 1, 3));
        let cause = Error::Start("rank 0 has no memory".into());
        assert_eq!(zero.fail(cause.clone()), cause);
        // Its store goes with it, and all ranks have been notified all the same.
        let gone = thread::spawn(move || drop(zero));
        let wanted = |rank| Error::Aborted {
            rank,
            by: 0,
            cause: cause.to_string(),
            code: cause.code(),
            location: None,
        };
        assert_eq!(seen(&mut one), wanted(1));
        // A rank that comes only now is notified too.
        let mut two = client(&at, 2, 3);
        assert_eq!(two.fail(Error::Start("rank 2 gave up".into())), wanted(2));
        drop((one, two));
        gone.join().expect("no panic");
    }
}

#[test]
fn the_end_of_rank_0_is_noticed_at_once() {
    let (server, at) = serve(2, b"");
    let zero = client(&at, 0, 2).with(server);
    let mut one = client(&at, 1, 2);
    let waits = thread::spawn(move || one.get("never", forever()));
    drop(zero);
    let began = Instant::now();
    let error = waits.join().expect("no panic").expect_err("no value").to_string();
    assert!(began.elapsed() < FOREVER / 2);
    assert!(error.contains("rank 0 is gone: it ended its store"), "{error}");
}
