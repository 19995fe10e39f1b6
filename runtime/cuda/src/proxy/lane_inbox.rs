//! The orders of a lane. They stay with the lane when another thread takes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use super::call::ProxyCall;
use super::queues::ProxyBatch;

/// An order announces what kernels will ask for. The kernels themselves say what they ask for, and when.
#[derive(Debug, Clone)]
pub(super) enum ProxyOrder {
    /// A call that will be launched, or is captured.
    Call(ProxyCall),
    /// The call of that number, which was not launched after all.
    Forget(u32),
    /// Messages between single ranks.
    Exchange(Arc<ProxyBatch>),
}

/// Orders that the thread of a lane has not taken yet.
#[derive(Debug, Default)]
pub(super) struct LaneInbox {
    orders: Mutex<VecDeque<ProxyOrder>>,
    /// The number of them, which a poll reads without a lock.
    count: AtomicUsize,
    /// True once there will be no more.
    is_closed: AtomicBool,
    /// The thread that serves the lane, which an order wakes.
    thread: Mutex<Option<Thread>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LaneInbox {
    /// Adds an order, and wakes the thread of the lane.
    pub(super) fn post(&self, order: ProxyOrder) {
        let mut orders = lock(&self.orders);
        orders.push_back(order);
        self.count.store(orders.len(), Ordering::Release);
        drop(orders);
        self.wake();
    }

    /// Takes the next order.
    pub(super) fn take(&self) -> Option<ProxyOrder> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut orders = lock(&self.orders);
        let order = orders.pop_front();
        self.count.store(orders.len(), Ordering::Release);
        order
    }

    /// Returns true if there are no orders, and will be none.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) && self.count.load(Ordering::Acquire) == 0
    }

    /// Ends the orders, and wakes the thread of the lane.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes this thread the one that orders wake. It has to look for orders afterwards.
    pub(super) fn attach(&self) {
        *lock(&self.thread) = Some(std::thread::current());
    }

    fn wake(&self) {
        lock(&self.thread).iter().for_each(Thread::unpark);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn orders_come_in_order_and_wake_the_thread_that_serves() {
        let inbox = Arc::new(LaneInbox::default());
        assert!(inbox.take().is_none() && !inbox.is_over());
        (0..3).for_each(|number| inbox.post(ProxyOrder::Forget(number)));
        inbox.close();
        assert!(!inbox.is_over(), "three are left");
        let taken = std::iter::from_fn(|| match inbox.take()? {
            ProxyOrder::Forget(number) => Some(number),
            _ => None,
        });
        assert_eq!(taken.collect::<Vec<_>>(), [0, 1, 2]);
        assert!(inbox.is_over());
        inbox.attach();
        let (other, began) = (inbox.clone(), Instant::now());
        let poster = std::thread::spawn(move || other.post(ProxyOrder::Forget(3)));
        while inbox.take().is_none() {
            assert!(began.elapsed() < Duration::from_secs(20), "it sleeps on");
            std::thread::park_timeout(Duration::from_secs(30));
        }
        poster.join().expect("no panic");
    }
}
