//! Slots where a schedule does not say how many.

/// Slots a connection where the schedule does not say.
pub(super) const DEFAULT_SLOTS: u32 = 4;

/// Returns the slots that fusion counts on, if a schedule asks for `slots`. Other numbers make the same
/// plans.
pub(crate) fn fusion_slots(slots: Option<u32>) -> u32 {
    slots.unwrap_or(DEFAULT_SLOTS).clamp(2, DEFAULT_SLOTS)
}
