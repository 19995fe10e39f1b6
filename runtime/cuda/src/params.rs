//! The words of kernels' parameters.

use roundelay_compiler::device::abi;

/// Parameters of a kernel as words: those of [`abi::KernelParams`], then four addresses a rank.
pub(crate) const WORDS: usize = size_of::<abi::KernelParams>() / 8;

/// The index of a parameter among the words.
macro_rules! word {
    ($field:ident) => {
        std::mem::offset_of!(roundelay_compiler::device::abi::KernelParams, $field) / 8
    };
}
pub(crate) use word;

/// Returns the words of parameters, in the kernel's order.
pub(crate) fn words(params: &abi::KernelParams) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    macro_rules! set {
        ($($field:ident),*) => {{
            let abi::KernelParams { $($field,)* multicast, factor } = *params;
            $(words[word!($field)] = $field;)*
            words[word!(multicast)..][..3].copy_from_slice(&multicast);
            words[word!(factor)] = factor.to_bits();
        }};
    }
    set!(
        count,
        pass,
        passes,
        groups,
        unit,
        staging,
        halves,
        packets,
        packet_half,
        scratch,
        host,
        far,
        state,
        abort,
        report,
        timeout,
        part,
        program,
        number
    );
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_as_the_structure_does() {
        let params = abi::KernelParams {
            count: 1,
            pass: 2,
            passes: 3,
            groups: 4,
            unit: 5,
            staging: 6,
            halves: 7,
            packets: 8,
            packet_half: 9,
            scratch: 10,
            host: 11,
            far: 12,
            state: 13,
            abort: 14,
            report: 15,
            timeout: 16,
            part: 17,
            program: 18,
            number: 19,
            multicast: [20, 21, 22],
            factor: 1.5,
        };
        let mut wanted: Vec<u64> = (1..=22).collect();
        wanted.push(1.5f64.to_bits());
        assert_eq!(words(&params).to_vec(), wanted);
    }
}
