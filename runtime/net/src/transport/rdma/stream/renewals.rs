//! New queues in the place of those that failed, while others live.
//!
//! One end, the one that *chooses*, asks for it in a note when the old queue has ended on both sides, after a
//! pause that grows, and if its port works:
//!
//! 1. it makes a queue and *asks*;
//! 2. the other makes one, connects it, and says that it is *ready*: from then on its device takes what comes;
//! 3. the first connects its own, and sends an empty write through it: when that is delivered the way works;
//! 4. it says *go*, with the number of the new queue. The other uses it from when it hears that; the first one
//!    when that was delivered, through another queue: the new one is not looked at before.
//!
//! Either may say *not* instead, and both forget what they had made. A new queue has a number of its own:
//! whatever was said of the old one, or is late, means the old one. Numbers are not given twice, so there are
//! only so many ([`RAILS`]).

use std::thread::JoinHandle;

use super::*;

/// The pause after its end before a queue is made anew, at first; it doubles with each attempt up to the
/// second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The lifetime of a queue after which pauses begin with the shortest again.
const LONG: Duration = Duration::from_secs(60);
/// The time that the first write through a new queue may take.
const PROOF: Duration = Duration::from_secs(3);

/// A step towards a new queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Renewal {
    /// The number of the old one.
    of: u32,
    attempt: u32,
    step: Step,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    Ask(Address),
    Ready(Address),
    Go(u32),
    Not,
}

/// A queue in the making.
enum Making {
    /// The peer was asked.
    Asked(Rail),
    Connecting(JoinHandle<std::io::Result<Rail>>),
    /// Its first write is under way.
    Proving(Rail, Instant),
    /// It was delivered.
    Proved(Rail),
    /// Its number is in this piece.
    Going(Rail, usize, u64),
    /// The peer may use it.
    Ready(Rail),
}

pub(super) struct Renewals {
    /// True if this end asks.
    pub(super) chooses: bool,
    /// Queues that have ended on the other side, as a mask.
    pub(super) ended_there: u32,
    /// Receives of a queue.
    receives: u32,
    attempts: u32,
    /// The queues in the making, by the number of the old one, and attempt.
    making: Vec<(u32, u32, Making)>,
    /// The messages that the peer is to be sent.
    steps: VecDeque<Renewal>,
    /// The new queues, each with its number and that of the old one.
    coming: Vec<(usize, usize, Rail)>,
    /// Numbers that this end has given to queues that do not take part yet.
    given: usize,
    pub(super) pause: (Duration, Duration),
}

impl Renewals {
    pub(super) fn new(receives: u32) -> Renewals {
        Renewals {
            chooses: false,
            ended_there: 0,
            receives,
            attempts: 0,
            making: Vec::new(),
            steps: VecDeque::new(),
            coming: Vec::new(),
            given: 0,
            pause: PAUSE,
        }
    }

    /// Records that a queue has ended on both sides.
    pub(super) fn ended(&self, rail: &mut Rail) {
        if rail.due.is_none() {
            let is_old = rail.pause.is_zero() || rail.made.elapsed() > LONG;
            rail.pause = if is_old { self.pause.0 } else { rail.pause };
            rail.due = Some(Instant::now() + rail.pause);
        }
    }

    /// Puts off the renewal of a queue.
    fn put_off(&self, rail: &mut Rail) {
        rail.pause = (2 * rail.pause).min(self.pause.1);
        rail.due = Some(Instant::now() + rail.pause);
    }

    /// Destroys all that is in the making.
    pub(super) fn clear(&mut self) {
        self.making.clear();
        self.coming.clear();
    }

    fn take(&mut self, renewal: &Renewal) -> Option<Making> {
        let is = |(of, attempt, _): &(u32, u32, Making)| {
            (*of, *attempt) == (renewal.of, renewal.attempt)
        };
        let at = self.making.iter().position(is)?;
        Some(self.making.swap_remove(at).2)
    }

    fn say(&mut self, of: u32, attempt: u32, step: Step) {
        self.steps.push_back(Renewal { of, attempt, step });
    }
}

/// Connects a queue. For this the system may ask the network for a second who has an address.
fn connect(rail: Rail, address: Address) -> std::io::Result<Making> {
    let connecting = move || {
        let connected = rail.queue().map_or(Ok(()), |queue| queue.connect(&address));
        connected.map(|()| rail)
    };
    let thread = std::thread::Builder::new().name("roundelay-rdma".into()).spawn(connecting)?;
    Ok(Making::Connecting(thread))
}

impl Stream {
    /// Goes on with all new queues as far as possible.
    pub(super) fn renew(&mut self) {
        let Renewals { making, steps, coming, chooses, .. } = &self.renewals;
        let is_idle = making.is_empty() && steps.is_empty() && coming.is_empty();
        if is_idle && (!chooses || self.rails.all.iter().all(Rail::is_live)) {
            return;
        }
        if self.renewals.chooses {
            self.ask();
        }
        for (of, attempt, making) in std::mem::take(&mut self.renewals.making) {
            match self.step(of, attempt, making) {
                Ok(Some(making)) => self.renewals.making.push((of, attempt, making)),
                Ok(None) => {}
                Err(_) => self.renounce(of, attempt),
            }
        }
        let number = self.rails.all.len();
        if let Some(at) = self.renewals.coming.iter().position(|(is, ..)| *is == number) {
            let (_, of, rail) = self.renewals.coming.swap_remove(at);
            self.welcome(of, rail);
            self.renewals.given = self.renewals.given.saturating_sub(1);
        }
        while let Some(step) = self.renewals.steps.pop_front() {
            if !self.note(&Note::Renewal(step.clone())) {
                self.renewals.steps.push_front(step);
                break;
            }
        }
    }

    /// Asks for queues that are due.
    fn ask(&mut self) {
        let now = Instant::now();
        for of in 0..self.rails.all.len() {
            let rail = &self.rails.all[of];
            let is_due = !rail.is_replaced && rail.due.is_some_and(|due| due <= now);
            let Renewals { making, coming, .. } = &self.renewals;
            // Accesses that are refused again and again take no numbers from what carries pieces.
            let most = if rail.is_one_sided { RAILS / 2 } else { RAILS };
            let has_number = self.rails.all.len() + making.len() + coming.len() < most;
            // Whoever asks once more takes back what the peer has made.
            let is_under_way = making.iter().any(|(is, ..)| *is as usize == of)
                || coming.iter().any(|(_, is, _)| *is == of);
            if !is_due || !has_number || is_under_way {
                continue;
            }
            let of = of as u32;
            self.renewals.attempts += 1;
            let attempt = self.renewals.attempts;
            match self.another(of).and_then(|rail| Some((rail.queue()?.address(), rail))) {
                Some((address, rail)) => {
                    self.renewals.say(of, attempt, Step::Ask(address));
                    self.renewals.making.push((of, attempt, Making::Asked(rail)));
                }
                None => self.renewals.put_off(&mut self.rails.all[of as usize]),
            }
        }
    }

    /// Makes a queue as one that has ended on both sides was, not connected yet.
    fn another(&self, of: u32) -> Option<Rail> {
        let old = self.rails.all.get(of as usize)?;
        let (device, gid) = &old.source;
        if !old.has_ended() || old.live_there || old.is_replaced || !device.is_active() {
            return None;
        }
        let sequence = self.region.start() as usize as u32 >> 12 ^ self.next as u32;
        let queue = Queue::new(device, *gid, &self.region, DEPTH, sequence).ok()?;
        let mut rail = Rail::new(queue, old.device.0, self.renewals.receives).ok()?;
        (rail.device, rail.peer_key) = (old.device, old.peer_key);
        rail.is_one_sided = old.is_one_sided;
        rail.pause = (2 * old.pause).min(self.renewals.pause.1);
        Some(rail)
    }

    /// Gives up this attempt, and tells the peer.
    fn renounce(&mut self, of: u32, attempt: u32) {
        self.renewals.say(of, attempt, Step::Not);
        if self.renewals.chooses
            && let Some(rail) = self.rails.all.get_mut(of as usize)
        {
            self.renewals.put_off(rail);
        }
    }

    /// Moves a new queue on as far as it can go without the peer; returns what becomes of it.
    fn step(&mut self, of: u32, attempt: u32, making: Making) -> std::io::Result<Option<Making>> {
        match making {
            Making::Connecting(thread) if thread.is_finished() => {
                let rail = thread.join().map_err(|_| std::io::ErrorKind::Other)??;
                let Some(queue) = rail.queue() else { return Ok(None) };
                if self.renewals.chooses {
                    let from = self.region.span(SENT, 0, rail.device.0);
                    let (to, to_key) = (self.peer + ARRIVED as u64, rail.peer_key);
                    let immediate = Word::Ended(0).encode();
                    queue.write(&Write { id: TOLD, from, to, to_key, immediate })?;
                    return Ok(Some(Making::Proving(rail, Instant::now())));
                }
                self.renewals.say(of, attempt, Step::Ready(queue.address()));
                Ok(Some(Making::Ready(rail)))
            }
            Making::Proving(rail, since) => {
                let mut news = Vec::new();
                if let Some(queue) = rail.queue() {
                    queue.poll(|completion| news.push(completion));
                }
                match news[..] {
                    [Completion::Written(_)] => Ok(Some(Making::Proved(rail))),
                    [] if since.elapsed() < PROOF => Ok(Some(Making::Proving(rail, since))),
                    _ => Err(std::io::ErrorKind::TimedOut.into()),
                }
            }
            Making::Proved(rail) => {
                let number = self.rails.all.len() + self.renewals.given;
                let renewal = Renewal { of, attempt, step: Step::Go(number as u32) };
                if !self.note(&Note::Renewal(renewal)) {
                    return Ok(Some(Making::Proved(rail)));
                }
                self.renewals.given += 1;
                Ok(Some(Making::Going(rail, number, self.next - 1)))
            }
            Making::Going(rail, number, piece) => {
                let is_reused = self.next - piece > SLOTS as u64;
                if !is_reused && !self.sent[piece as usize % SLOTS].done {
                    return Ok(Some(Making::Going(rail, number, piece)));
                }
                self.renewals.coming.push((number, of as usize, rail));
                Ok(None)
            }
            making => Ok(Some(making)),
        }
    }

    /// Lets a new queue take part from now on.
    fn welcome(&mut self, of: usize, mut rail: Rail) {
        if let Some(old) = self.rails.all.get_mut(of) {
            old.is_replaced = true;
        }
        rail.made = Instant::now();
        let number = self.rails.all.len();
        self.rails.all.push(rail);
        if self.renewals.ended_there & 1 << number != 0 {
            self.rails.all[number].live_there = false;
            self.lose(number, QueueError::EndedThere);
        }
    }

    /// Handles a step of the peer.
    pub(super) fn hear_renewal(&mut self, renewal: Renewal) {
        let Renewal { of, attempt, .. } = renewal;
        let known = self.renewals.take(&renewal);
        let made = match (renewal.step, known) {
            (Step::Ask(address), _) => {
                // Both sides of that queue have ended, though that may be news here.
                let at = of as usize;
                if self.rails.all.get_mut(at).is_some_and(|r| std::mem::take(&mut r.live_there)) {
                    self.lose(at, QueueError::EndedThere);
                    self.reclaim(at);
                }
                self.renewals.making.retain(|(is, ..)| *is != of);
                self.another(of).and_then(|rail| connect(rail, address).ok())
            }
            (Step::Ready(address), Some(Making::Asked(rail))) => connect(rail, address).ok(),
            (Step::Go(number), Some(Making::Ready(rail))) => {
                self.renewals.coming.push((number as usize, of as usize, rail));
                return;
            }
            (Step::Not, known) => {
                if let (true, Some(_), Some(rail)) =
                    (self.renewals.chooses, known, self.rails.all.get_mut(of as usize))
                {
                    self.renewals.put_off(rail);
                }
                return;
            }
            _ => return,
        };
        match made {
            Some(made) => self.renewals.making.push((of, attempt, made)),
            None => self.renounce(of, attempt),
        }
    }
}

#[cfg(test)]
impl Renewals {
    /// Describes the queues in the making, and the numbers that were given.
    pub(super) fn state(&self) -> String {
        let making = |(of, attempt, making): &(u32, u32, Making)| {
            let stage = match making {
                Making::Asked(_) => "asked",
                Making::Connecting(_) => "connecting",
                Making::Proving(..) => "proving",
                Making::Proved(_) => "proved",
                Making::Going(..) => "going",
                Making::Ready(_) => "ready",
            };
            format!("attempt {attempt} of {of}: {stage}")
        };
        let making: Vec<String> = self.making.iter().map(making).collect();
        let coming: Vec<_> = self.coming.iter().map(|(number, of, _)| (number, of)).collect();
        format!("making {making:?}, coming {coming:?}, given {}", self.given)
    }
}
