//! Runs pieces of work on threads of their own, where the system may have none left to give.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Result as Joined, Scope, ScopedJoinHandle};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs pieces of work that do not wait for each other on a limited number of threads, this one among them: the others
/// help as far as the system starts them. Returns the results in the order of the pieces.
///
/// # Panics
///
/// If a piece does.
pub fn run_shared<T: Send, R: Send>(
    pieces: impl IntoIterator<Item = T>,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    run_shared_by(Builder::new, pieces, threads, work)
}

fn run_shared_by<T: Send, R: Send>(
    thread: impl Fn() -> Builder,
    pieces: impl IntoIterator<Item = T>,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let queue: VecDeque<_> = pieces.into_iter().enumerate().collect();
    let others = threads.min(queue.len()).saturating_sub(1);
    let (queue, done) = (Mutex::new(queue), Mutex::new(Vec::new()));
    let help = || {
        loop {
            let next = lock(&queue).pop_front();
            let Some((at, piece)) = next else { return };
            let result = work(piece);
            lock(&done).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            if thread().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        help();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs pieces of work that wait for each other, each on a thread of its own. None begins unless all have one.
///
/// # Errors
///
/// The error of the system if it does not start as many threads; the results are those of joining them.
pub fn run_together<T: Send, R: Send>(
    pieces: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> io::Result<Vec<Joined<R>>> {
    run_together_by(|_| Builder::new(), pieces, work)
}

fn run_together_by<T: Send, R: Send>(
    thread: impl Fn(usize) -> Builder,
    pieces: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> io::Result<Vec<Joined<R>>> {
    let (starts, decided) = (Mutex::new(None), Condvar::new());
    let decide = |start: bool| {
        *lock(&starts) = Some(start);
        decided.notify_all();
    };
    let waits = || {
        let decision = decided.wait_while(lock(&starts), |starts| starts.is_none());
        decision.unwrap_or_else(PoisonError::into_inner).unwrap_or(false)
    };
    let (work, waits) = (&work, &waits);
    std::thread::scope(|scope: &Scope<'_, '_>| {
        let begin = |(at, piece)| {
            thread(at).spawn_scoped(scope, move || if waits() { Some(work(piece)) } else { None })
        };
        let begun: io::Result<Vec<ScopedJoinHandle<'_, Option<R>>>> =
            pieces.into_iter().enumerate().map(begin).collect();
        decide(begun.is_ok());
        let results = begun?.into_iter().filter_map(|thread| thread.join().transpose());
        Ok(results.collect())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Returns the settings of a thread whose stack no system has.
    fn none() -> Builder {
        Builder::new().stack_size(1 << 60)
    }

    #[test]
    fn shared_work_is_done_without_any_thread() {
        assert!(none().spawn(|| {}).is_err(), "a stack of an exbibyte");
        assert_eq!(run_shared_by(none, 0..5, 4, |n| n * n), [0, 1, 4, 9, 16]);
        assert_eq!(run_shared(0..100, 4, |n| n + 1), (1..101).collect::<Vec<_>>());
        assert!(run_shared(Vec::<u8>::new(), 0, |n| n).is_empty());
    }

    #[test]
    fn work_that_waits_for_each_other_begins_on_all_threads_or_on_none() {
        let barrier = Barrier::new(3);
        let together = |pieces| {
            run_together(pieces, |n: u32| {
                barrier.wait();
                n
            })
        };
        let all: Vec<u32> =
            together(0..3).expect("threads").into_iter().map(|r| r.expect("a number")).collect();
        assert_eq!(all, [0, 1, 2]);
        let last_fails = |at| if at == 2 { none() } else { Builder::new() };
        let refused = run_together_by(last_fails, 0..3, |_| unreachable!("none begins"));
        assert!(refused.is_err());
        let panics = run_together(0..2, |n| assert_eq!(n, 0)).expect("threads");
        assert!(panics[0].is_ok() && panics[1].is_err());
    }
}
