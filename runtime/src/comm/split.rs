//! Communicators of a part of the ranks.

use super::communicator::Communicator;
use roundelay_engine::trace::now;
use roundelay_net::group::GroupPart;
use roundelay_net::net::WaitPolicy;
use roundelay_net::route::RankRoute;
use roundelay_support::digest::mix;
use roundelay_support::error::Error;

/// The word that a rank shows when its list, or its attempt, is invalid. No list has this digest, and no
/// descriptor this number.
const REFUSED: u64 = u64::MAX;
/// The word of a rank that wants to be in no part.
const NOTHING: u64 = 0;

impl Communicator {
    /// Returns the link to each rank, and the reason for it.
    pub fn routes(&self) -> &[RankRoute] {
        &self.routes
    }

    /// Returns a communicator of these ranks, in this order; rank r of it is `ranks[r]` of this one. All
    /// ranks of this communicator call together. Ranks with the same list are in the same part, so one call
    /// can make several parts; a rank with an empty list is in none and gets `None`. Buffers of either
    /// communicator serve both.
    ///
    /// A part that fails ends this communicator too: calls that wait here for others, now or later,
    /// return the cause. Its other parts go on.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// // Each rank by itself; `&[1, 0]` on both would be one part, in the other order.
    /// let part = comm.split(&[comm.rank()])?;
    /// assert_eq!(part.map(|part| part.size()), Some(1));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] on all ranks if any rank's list names a rank twice, one that does not exist,
    /// or not the rank itself, or if the ranks of a list did not all give that list. This
    /// communicator stays usable. Otherwise the errors of [`Communicator::run`].
    pub fn split(&mut self, ranks: &[u32]) -> Result<Option<Communicator>, Error> {
        let (own, size) = (self.rank(), self.size());
        let fault = objection(ranks, own, size);
        let digest = ranks.iter().fold(mix(1, ranks.len() as u64), |d, &r| mix(d, r.into()));
        let digest = digest.clamp(NOTHING + 1, REFUSED - 1);
        let shown = match (&fault, ranks) {
            (Some(_), _) => REFUSED,
            (None, []) => NOTHING,
            (None, _) => digest,
        };
        let lists = self.all_gather_u64(shown)?;
        if let Some(fault) = fault {
            return Err(Error::Usage(fault));
        }
        all_well(&lists, "gave a list that cannot be split off")?;
        let odd = ranks.iter().find(|&&r| lists[r as usize] != digest);
        let core = self.core()?;
        let id = core.group.next_id(digest);
        let begun = match odd {
            None if !ranks.is_empty() => core.group.begin_part(ranks, id).map(Some),
            _ => Ok(None),
        };
        let number = match (&begun, odd) {
            (Ok(part), None) => part.as_ref().map_or(0, GroupPart::number),
            _ => REFUSED,
        };
        let numbers = self.all_gather_u64(number)?;
        self.all_here(&numbers)?;
        if let Some(odd) = odd {
            return Err(Error::Usage(format!(
                "rank {own} splits off {ranks:?}, but rank {odd} gave another list: all ranks of a \
                 part must give the same list"
            )));
        }
        let mut part = begun?;
        all_well(&numbers, "could not split")?;
        let core = self.core()?;
        let opened = part.as_mut().map_or(Ok(()), |part| core.group.open_part(part, &numbers));
        // Other ranks may have met, and wait in the part by now.
        let done = self
            .all_gather_u64(if opened.is_ok() { 0 } else { REFUSED })
            .inspect_err(|error| self.end_part(part.as_ref(), error))?;
        self.all_here(&done)?;
        opened?;
        all_well(&done, "could not open the memory of its part")?;
        let mut made = part.as_ref().map(|part| self.link_part(part)).transpose()?;
        if let (Some(made), Some(identity)) = (&mut made, &self.identity) {
            made.identity = Some(Box::new(identity.of_part(id)?));
        }
        let core = self.core()?;
        if core.group.is_networked() {
            // All parts are linked, or none is of any use; others may have begun to use theirs.
            core.words(0).inspect_err(|error| {
                let cause = part.as_ref().map(|part| part.record(core.rank(), error));
                let core = made.as_mut().and_then(|made| made.core().ok());
                cause.iter().zip(core).for_each(|(cause, core)| core.group.abort(cause));
            })?;
        }
        Ok(made)
    }

    /// Meets once more if some rank could not go on: another one may have died, which was there until now.
    /// Then that is the error.
    fn all_here(&mut self, words: &[u64]) -> Result<(), Error> {
        match words.contains(&REFUSED) {
            true => self.all_gather_u64(0).map(drop),
            false => Ok(()),
        }
    }

    /// Ends a part that this rank will not have, for its ranks that have it already.
    fn end_part(&mut self, part: Option<&GroupPart>, error: &Error) {
        if let (Some(part), Ok(core)) = (part, self.core())
            && let Ok(group) = core.group.end_part(part, None)
        {
            group.abort(&part.record(core.rank(), error));
        }
    }

    /// Connects the ranks of a part that share no memory. It is too late to go back: a rank that fails here
    /// fails the whole.
    fn link_part(&mut self, part: &GroupPart) -> Result<Communicator, Error> {
        let (arena, timeout) = (self.arena.clone(), self.settings.timeout);
        let (core, members, since) = (self.core()?, part.members(), now());
        let mut net = core.group.part_net(part)?;
        let connected = net.as_mut().map_or(Ok(()), |net| {
            let watch = &mut |peer| core.watch(peer, since);
            net.connect_part(WaitPolicy { timeout, watch, members })
        });
        if let Err(error) = connected {
            let error = core.explain(error);
            let error = core.fail(error);
            net.iter_mut().for_each(|net| net.give_up(&part.record(core.rank(), &error)));
            return Err(error);
        }
        let mut made = Communicator::over(core.group.end_part(part, net)?, arena);
        made.set_timeout(timeout);
        let watch = &mut |peer| core.watch(peer, since);
        let opened = made.core()?.open_links(WaitPolicy { timeout, watch, members });
        core.watched();
        match opened {
            Ok(()) => Ok(made),
            Err(error) => {
                let error = core.explain(error);
                let error = core.fail(error);
                made.core()?.group.abort(&part.record(core.rank(), &error));
                Err(error)
            }
        }
    }
}

/// Returns the reason for which a list of ranks cannot be split off by this rank.
fn objection(ranks: &[u32], own: u32, size: u32) -> Option<String> {
    if let Some(r) = ranks.iter().find(|&&r| r >= size) {
        return Some(format!("rank {own} splits off {ranks:?}: there is no rank {r} among {size}"));
    }
    let twice = (1..ranks.len()).find(|&i| ranks[..i].contains(&ranks[i]));
    if let Some(i) = twice {
        return Some(format!("rank {own} splits off {ranks:?}: rank {} is there twice", ranks[i]));
    }
    (!ranks.is_empty() && !ranks.contains(&own))
        .then(|| format!("rank {own} splits off {ranks:?}, and is not among them itself"))
}

fn all_well(words: &[u64], what: &str) -> Result<(), Error> {
    match words.iter().position(|&word| word == REFUSED) {
        None => Ok(()),
        Some(rank) => Err(Error::Usage(format!("rank {rank} {what}"))),
    }
}
