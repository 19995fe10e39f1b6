//! The board of a process: where rank 0 of a communicator leaves a note for the others before they are connected.
//!
//! A process that makes a unique id serves a board, at a port of the system's choice, until it ends. Rank 0 posts one
//! note under the token of the id, and the others fetch it: the note says where rank 0 serves the store at which all
//! ranks meet, which asks each for a proof that it knows the id's secret. Here a token is asked for: a process that
//! does not know one is not answered, and can neither read nor leave a note. Where the environment gives a secret or
//! certificates, both sides prove them first, and all of it is encrypted.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use roundelay::Hints;
use roundelay::internal::{
    ChannelSocket, ChannelTrust, OwnerProcess, ProofSide, bind_within, channel_trust,
    give_up_in_children, host_addresses, interface_address, listen_everywhere,
};
use roundelay::limits::BOARD;

use crate::failure::{CallFailure, Outcome};
use crate::id::{MOST as MOST_PLACES, ParsedId, Token};
use crate::tunables::{BOARD_CHECK_INTERVAL, BOARD_CONNECTIONS_MAX, BOARD_NOTE_BYTES};

/// The beginning of every request and answer.
const MAGIC: [u8; 8] = *b"rlboard\x01";
/// Bytes of a request before its note: magic, token, what is asked, length of the note.
const HEAD: usize = BOARD.bytes;

const POST: u8 = 1;
const FETCH: u8 = 2;

struct IdBoard {
    /// The process that serves it: its children have it too, and not the thread.
    process: OwnerProcess,
    places: Vec<SocketAddr>,
    /// The proof of both sides, if connections are encrypted.
    trust: Option<ChannelTrust>,
    /// The notes of the tokens that are known; those that are expected are not there yet.
    notes: Mutex<BTreeMap<Token, Option<Vec<u8>>>>,
    posted: Condvar,
    /// The connections that have not named a token, the oldest first.
    strangers: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
    next: AtomicU64,
    waiting: AtomicUsize,
}

/// A place among the strangers of a board, which comes back whatever becomes of its connection.
struct StrangerPlace {
    board: &'static IdBoard,
    number: u64,
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.board.strangers().remove(&self.number);
    }
}

/// A place among those that wait for a note.
struct WaitingPlace(&'static AtomicUsize);

impl WaitingPlace {
    /// Takes a place, if one is free.
    fn take(board: &'static IdBoard) -> Option<Self> {
        let place = WaitingPlace(&board.waiting);
        (board.waiting.fetch_add(1, Ordering::Relaxed) < BOARD_CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IdBoard {
    fn notes(&self) -> MutexGuard<'_, BTreeMap<Token, Option<Vec<u8>>>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strangers(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<TcpStream>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection that has said nothing yet, and turns the oldest away if there is none.
    fn admit(&'static self, stream: &Arc<TcpStream>) -> StrangerPlace {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.strangers().len() >= BOARD.places() {
            self.turn_oldest_away();
        }
        self.strangers().insert(number, stream.clone());
        StrangerPlace { board: self, number }
    }

    /// Ends the connection that has said nothing for longest; returns false if there is none.
    fn turn_oldest_away(&self) -> bool {
        let oldest = self.strangers().pop_first();
        // Its thread reads the end of the connection.
        oldest.is_some_and(|(_, stream)| stream.shutdown(Shutdown::Both).is_ok())
    }

    fn leave(&self, token: Token, note: Vec<u8>) {
        self.notes().insert(token, Some(note));
        self.posted.notify_all();
    }

    fn expect(&self, token: Token) {
        self.notes().entry(token).or_default();
    }

    /// Waits for a note, as long as `go_on` says so.
    fn wait(&self, token: &Token, mut go_on: impl FnMut() -> bool) -> Option<Vec<u8>> {
        let mut notes = self.notes();
        loop {
            if let Some(Some(note)) = notes.get(token) {
                return Some(note.clone());
            }
            let waited = self.posted.wait_timeout(notes, BOARD_CHECK_INTERVAL);
            notes = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !go_on() {
                return None;
            }
        }
    }

    /// Answers one request.
    fn answer(&'static self, stream: &TcpStream, place: StrangerPlace) -> std::io::Result<()> {
        let until = Instant::now() + BOARD.patience;
        stream.set_write_timeout(Some(BOARD.patience))?;
        let mut channel = ChannelSocket::open(
            stream.try_clone()?,
            ProofSide::Accepting,
            self.trust.as_ref(),
            until,
        )?;
        let mut head = [0; HEAD];
        channel.read_until(&mut head, until)?;
        let Some((token, what, bytes)) = request(&head) else { return Ok(()) };
        // Strangers do not wait here; a rank that is early comes again.
        if !self.notes().contains_key(&token) {
            return Ok(());
        }
        drop(place);
        let Some(_place) = WaitingPlace::take(self) else { return Ok(()) };
        let mut note = vec![0; bytes];
        channel.read_until(&mut note, until)?;
        let answer = match what {
            POST => {
                self.leave(token, note);
                Vec::new()
            }
            _ => {
                let Some(note) = self.wait(&token, || channel.is_open()) else { return Ok(()) };
                note
            }
        };
        channel.write_all(&framed(&token, what, &answer))
    }
}

fn framed(token: &Token, what: u8, note: &[u8]) -> Vec<u8> {
    [&MAGIC[..], token, &[what], &(note.len() as u32).to_le_bytes(), note].concat()
}

/// Returns token, what is asked, and the bytes that follow.
fn request(head: &[u8; HEAD]) -> Option<(Token, u8, usize)> {
    let token = head[8..24].try_into().ok()?;
    let bytes = u32::from_le_bytes(head[25..].try_into().ok()?) as usize;
    let fits = head[..8] == MAGIC && [POST, FETCH].contains(&head[24]) && bytes <= BOARD_NOTE_BYTES;
    fits.then_some((token, head[24], bytes))
}

/// Returns the board of this process, which it begins to serve. A child of a process that serves one serves its own.
fn own() -> Outcome<&'static IdBoard> {
    static OWN: AtomicPtr<IdBoard> = AtomicPtr::new(std::ptr::null_mut());
    loop {
        let current = OWN.load(Ordering::Acquire);
        // SAFETY: boards are never freed.
        if let Some(board) = unsafe { current.as_ref() }.filter(|board| board.process.is_here()) {
            return Ok(board);
        }
        let made = serve().map_err(|error| {
            CallFailure::system(format!(
                "this process cannot listen for the other ranks: {error}; free a port, or raise the limit of \
                 descriptors"
            ))
        })?;
        // Another thread may be first: its board is that of the process.
        let made = std::ptr::from_ref(made).cast_mut();
        let _ = OWN.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
    }
}

fn serve() -> std::io::Result<&'static IdBoard> {
    let hints = Hints::from_env().map_err(std::io::Error::other)?;
    let own = match hints.interface() {
        Some(interface) => Some(interface_address(interface).map_err(std::io::Error::other)?),
        None => None,
    };
    let listener = bind_within(hints.ports(), |port| match own {
        Some(ip) => TcpListener::bind((ip, port)),
        None => listen_everywhere(port),
    })?;
    give_up_in_children(&listener);
    let port = listener.local_addr()?.port();
    // An id has room for some places only, of which the last leads to this host alone.
    let everywhere = || {
        let far = host_addresses().into_iter().take(MOST_PLACES - 1);
        far.chain([Ipv4Addr::LOCALHOST.into()]).collect()
    };
    let places: Vec<IpAddr> = own.map_or_else(everywhere, |ip| vec![ip]);
    let board: &'static IdBoard = Box::leak(Box::new(IdBoard {
        process: OwnerProcess::here(),
        trust: channel_trust().map_err(std::io::Error::other)?,
        places: places.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        notes: Mutex::default(),
        posted: Condvar::new(),
        strangers: Mutex::default(),
        next: AtomicU64::new(0),
        waiting: AtomicUsize::new(0),
    }));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // The limit of descriptors, most likely: they come back, a stranger's at once.
                match board.turn_oldest_away() {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(BOARD_CHECK_INTERVAL),
                }
                continue;
            };
            give_up_in_children(&stream);
            let stream = Arc::new(stream);
            let place = board.admit(&stream);
            let answer = move || {
                // Who asks wrongly, or leaves, has no answer.
                let _ = board.answer(&stream, place);
            };
            // Without a thread the connection ends, and its place comes back.
            let _ = std::thread::Builder::new().name("roundelay-note".into()).spawn(answer);
        }
    };
    std::thread::Builder::new().name("roundelay-board".into()).spawn(accept)?;
    Ok(board)
}

/// Makes an id whose ranks meet at this process's board.
pub(crate) fn announce() -> Outcome<ParsedId> {
    let board = own()?;
    let id = ParsedId::new(board.places.clone())?;
    board.expect(id.token);
    Ok(id)
}

/// Returns the places of this process's board.
pub(crate) fn places() -> Outcome<Vec<SocketAddr>> {
    Ok(own()?.places.clone())
}

/// Leaves the note of an id, at the board that it names.
pub(crate) fn post(id: &ParsedId, note: &str, deadline: Instant) -> Outcome {
    if let Some(board) = here(id) {
        board.leave(id.token, note.as_bytes().to_vec());
        return Ok(());
    }
    ask(id, POST, note.as_bytes(), deadline).map(drop)
}

/// Returns the note of an id, once it is there.
pub(crate) fn fetch(id: &ParsedId, deadline: Instant) -> Outcome<String> {
    let note = match here(id) {
        Some(board) => board
            .wait(&id.token, || Instant::now() < deadline)
            .ok_or_else(|| CallFailure::system("rank 0 did not come in time".to_owned()))?,
        None => ask(id, FETCH, &[], deadline)?,
    };
    String::from_utf8(note).map_err(|_| CallFailure::system("the note of rank 0 is no text"))
}

/// Returns this process's board if the id names it.
fn here(id: &ParsedId) -> Option<&'static IdBoard> {
    // A process that has not served one yet has none that an id could name, but it costs nothing to ask.
    own().ok().filter(|board| board.places == id.places)
}

/// Asks the board of an id, at one of its places after the other.
fn ask(id: &ParsedId, what: u8, note: &[u8], deadline: Instant) -> Outcome<Vec<u8>> {
    let mut why = String::new();
    while Instant::now() < deadline {
        for place in &id.places {
            match ask_at(*place, id, what, note, deadline) {
                Ok(answer) => return Ok(answer),
                Err(error) => why = format!("{place}: {error}"),
            }
        }
        std::thread::sleep(BOARD_CHECK_INTERVAL);
    }
    Err(CallFailure::system(format!(
        "the process that made the unique id is not reached ({why}): see whether it is alive, whether a firewall \
         keeps its port, and whether all ranks have the same ROUNDELAY_SECRET and hint `encryption`"
    )))
}

fn ask_at(
    place: SocketAddr,
    id: &ParsedId,
    what: u8,
    note: &[u8],
    deadline: Instant,
) -> std::io::Result<Vec<u8>> {
    let left = || deadline.saturating_duration_since(Instant::now()).max(BOARD_CHECK_INTERVAL);
    let stream = TcpStream::connect_timeout(&place, left().min(BOARD.patience))?;
    stream.set_write_timeout(Some(BOARD.patience))?;
    let trust = channel_trust().map_err(std::io::Error::other)?;
    let until = Instant::now() + left();
    let mut stream = ChannelSocket::open(stream, ProofSide::Connecting, trust.as_ref(), until)?;
    stream.write_all(&framed(&id.token, what, note))?;
    let mut head = [0; HEAD];
    stream.read_until(&mut head, until)?;
    let bytes = match request(&head) {
        Some((token, answered, bytes)) if token == id.token && answered == what => bytes,
        _ => return Err(ErrorKind::InvalidData.into()),
    };
    let mut answer = vec![0; bytes];
    stream.read_until(&mut answer, until)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use roundelay_tests::fuzz::mutated;
    use roundelay_tests::{SeededRandom, runs_alone};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Returns an id of this process's board, and the same as another process has it.
    fn ids() -> [ParsedId; 2] {
        let own = announce().expect("a port, and random bytes");
        let port = own.places[0].port();
        let far = ParsedId {
            places: vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)],
            ..own.clone()
        };
        // The same place by another list: the way over a socket.
        let far = ParsedId { places: [far.places.clone(), far.places].concat(), ..far };
        [own, far]
    }

    #[test]
    fn a_note_reaches_all_whoever_comes_first() {
        for poster in 0..2 {
            let ids = ids();
            std::thread::scope(|scope| {
                let waits: Vec<_> =
                    ids.iter().map(|id| scope.spawn(move || fetch(id, soon()))).collect();
                post(&ids[poster], "the note", soon()).expect("a board");
                for wait in waits {
                    assert_eq!(wait.join().expect("no panic"), Ok("the note".to_owned()));
                }
            });
            assert_eq!(fetch(&ids[1], soon()), Ok("the note".to_owned()), "late, but it is there");
        }
    }

    #[test]
    fn a_wait_in_vain_ends() {
        let [own, far] = ids();
        let at_once = || Instant::now() + Duration::from_millis(1);
        for id in [&own, &far] {
            assert!(fetch(id, at_once()).is_err());
        }
        // A port without a listener.
        let free =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let gone = ParsedId { places: vec![free.expect("a port")], ..own };
        let why = fetch(&gone, at_once()).expect_err("nothing listens").text;
        assert!(why.contains("is not reached"), "{why}");
    }

    #[test]
    fn strangers_get_nothing() {
        let [own, far] = ids();
        post(&own, "the note", soon()).expect("a board");
        let unknown = [framed(&[7; 16], FETCH, &[]), framed(&[7; 16], POST, b"a note")];
        let noise = [&b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"[..], &[0; 64], &[0xff; 64]];
        for bytes in noise.into_iter().chain(unknown.iter().map(Vec::as_slice)) {
            let mut stream = TcpStream::connect(far.places[0]).expect("a connection");
            stream.write_all(bytes).expect("room");
            let mut rest = Vec::new();
            // The board hangs up, with or without having read all.
            let _ = stream.read_to_end(&mut rest);
            assert_eq!(rest, b"");
        }
        assert_eq!(fetch(&far, soon()), Ok("the note".to_owned()));
        assert!(!board().notes().contains_key(&[7; 16]), "nothing was left");
    }

    /// `ROUNDS=100` tries a hundred times as many, `SEED=7` others.
    #[test]
    fn bytes_at_random_disturb_no_board() {
        let number = |name: &str, default: u64| {
            std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
        };
        let [own, far] = ids();
        for trial in 0..200 * number("ROUNDS", 1) {
            let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
            let samples = [framed(&[7; 16], FETCH, &[]), framed(&[7; 16], POST, b"a note")];
            let mut bytes = mutated(&samples[dice.below(2)], &mut dice);
            bytes.extend(mutated(&samples[dice.below(2)], &mut dice));
            let mut stream = TcpStream::connect(far.places[0]).expect("a connection");
            stream.set_read_timeout(Some(BOARD.patience)).expect("a timeout");
            // It hangs up at the first wrong word.
            let _ = stream.write_all(&bytes[..dice.below(bytes.len() + 1)]);
            let _ = stream.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert_eq!(rest, b"", "trial {trial}");
        }
        post(&own, "the note", soon()).expect("a board");
        assert_eq!(fetch(&far, soon()), Ok("the note".to_owned()));
    }

    /// Waits until a number of strangers is at this process's board, and returns it.
    fn strangers_become(wanted: impl Fn(usize) -> bool) -> usize {
        let until = soon();
        loop {
            let there = board().strangers().len();
            if wanted(there) {
                return there;
            }
            assert!(Instant::now() < until, "{there} strangers");
            std::thread::yield_now();
        }
    }

    #[test]
    fn strangers_are_bounded_in_number_and_time_and_their_places_come_back() {
        // The board is that of the process, and tests beside this one are strangers too.
        let name = "strangers_are_bounded_in_number_and_time_and_their_places_come_back";
        if !runs_alone(module_path!(), name) {
            return;
        }
        let [own, far] = ids();
        let connect = || TcpStream::connect(far.places[0]).expect("a connection");
        let began = Instant::now();
        // One beyond the bound turns the oldest away, and it alone.
        let mut oldest = connect();
        strangers_become(|there| there >= 1);
        let crowd: Vec<_> = (0..BOARD.places()).map(|_| connect()).collect();
        oldest.set_read_timeout(Some(BOARD.patience / 2)).expect("a timeout");
        assert_eq!(oldest.read(&mut [0]).expect("its end, soon"), 0);
        assert!(board().strangers().len() <= BOARD.places());
        // Ranks meet all the same.
        post(&own, "the note", soon()).expect("a board");
        assert_eq!(fetch(&far, soon()), Ok("the note".to_owned()));
        // A byte now and then does not buy time.
        let mut slow = connect();
        let start = Instant::now();
        slow.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        let held = loop {
            let _ = slow.write(b"r");
            match slow.read(&mut [0]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                _ => break start.elapsed(),
            }
            assert!(start.elapsed() < 3 * BOARD.patience);
        };
        assert!(held < BOARD.patience + Duration::from_secs(5), "{held:?}");
        strangers_become(|there| there == 0);
        assert!(began.elapsed() < 6 * BOARD.patience);
        drop(crowd);
    }

    #[test]
    fn whoever_is_early_comes_again() {
        let [own, far] = ids();
        board().notes().remove(&own.token);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| fetch(&far, soon()));
            // As a rank does that makes a communicator of another one.
            post(&own, "the note", soon()).expect("a board");
            assert_eq!(waits.join().expect("no panic"), Ok("the note".to_owned()));
        });
    }

    fn board() -> &'static IdBoard {
        own().expect("a board")
    }
}
