//! The table of keys, and the parsers of their values.

use std::time::Duration;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::device::DeviceProtocol;
use roundelay_compiler::plan::MAX_PATHS;
use roundelay_compiler::program::COLLECTIVES;
use roundelay_dsl::diag::similar;

use super::error::{HintError, ValueError};
use super::values::{ChoiceObjective, Hints, LossyType, OnFailure, SuspendedCalls};
use roundelay_net::transport::{Transport, TransportSet};
use roundelay_support::encryption::EncryptionMode;

/// A row of [`TABLE`].
#[derive(Debug)]
pub struct HintKey {
    /// The key.
    pub name: &'static str,
    /// Its values, as people read them.
    pub values: &'static str,
    /// The meaning of the key.
    pub meaning: &'static str,
    /// A value that is accepted.
    pub example: &'static str,
    pub(super) read: fn(&mut Hints, &str) -> Result<(), ValueError>,
}

/// All keys, in the order of the documentation.
pub const TABLE: &[HintKey] = &[
    HintKey {
        name: "algorithm",
        values: "a name of the algorithm library, or `collective.name`, several separated by commas",
        meaning: "Run this algorithm, or give an error that names the clause it violates. A bare name \
                  holds for every collective that has an algorithm of that name; \
                  `all_reduce.ring,broadcast.chain` names one for each collective.",
        example: "all_reduce.ring,broadcast.chain",
        read: algorithm,
    },
    HintKey {
        name: "objective",
        values: "`latency` or `bandwidth`",
        meaning: "Choose by the cost model for calls of no bytes (`latency`), or for a gibibyte \
                  (`bandwidth`), whatever the size of the call.",
        example: "latency",
        read: |h, v| {
            word(
                v,
                &[("latency", ChoiceObjective::Latency), ("bandwidth", ChoiceObjective::Bandwidth)],
                &mut h.objective,
            )
        },
    },
    HintKey {
        name: "deterministic",
        values: "`batch_invariant`, its short form `true`, or `false`",
        meaning: "Run only algorithms that combine the ranks in ascending order, rounded once, as it is proved of \
                  them, so that the bits of an element depend on the contributions to it alone: not on its place, the \
                  vector's length, the algorithm, the transport or the memory, and reduce_scatter then all_gather \
                  equals all_reduce (docs/reproducible.md). Default `false`: bits are the same in every run and on \
                  all ranks, but may change with the size.",
        example: "batch_invariant",
        read: |h, v| match v {
            "batch_invariant" => {
                h.deterministic = Some(true);
                Ok(())
            }
            _ => truth(v, &mut h.deterministic)
                .map_err(|_| near(v, ["batch_invariant", "true", "false"].into_iter()).into()),
        },
    },
    HintKey {
        name: "lossy",
        values: "`none`, `bf16`, `f16` or `f32`",
        meaning: "Allow algorithms that round what they send to this type (sums of floats only). Default \
                  `none`.",
        example: "bf16",
        read: |h, v| {
            let types = [LossyType::None, LossyType::Bf16, LossyType::F16, LossyType::F32]
                .map(|l| (l.name(), l));
            word(v, &types, &mut h.lossy)
        },
    },
    HintKey {
        name: "transport",
        values: "`shm`, `tcp`, `rdma`, or several",
        meaning: "Reach other ranks over these transports only. Default all: shared memory inside a host, \
                  RDMA between hosts that have it, else TCP.",
        example: "shm,tcp",
        read: transport,
    },
    HintKey {
        name: "channels",
        values: "a number from 1 to 64",
        meaning: "Parallel connections that are made to each peer at once, where the transport has \
                  them; 3 by default, as many as the algorithm library uses.",
        example: "4",
        read: |h, v| number(v, 1, 64, &mut h.channels),
    },
    HintKey {
        name: "protocol",
        values: "`packet`, `staged`, `put`, `get`, `engine` or `multicast`",
        meaning: "How messages travel between GPUs: as packets that carry their own flags, through staging memory, \
                  written to where they belong in the peers' buffers, read from there, read from there by copy \
                  engines, or read and written on all at once by the switch, which was never tried on hardware, needs \
                  the feature `experimental` and is never chosen by itself. By size and memory by default.",
        example: "packet",
        read: |h, v| {
            word(
                v,
                &DeviceProtocol::ALL.map(|protocol| (protocol.name(), protocol)),
                &mut h.protocol,
            )
        },
    },
    HintKey {
        name: "max_sms",
        values: "a number from 1 to 128",
        meaning: "Most multiprocessors of a GPU that a call occupies, so that others are left to compute. Default: \
                  all, a quarter for asynchronous operations of PyTorch.",
        example: "16",
        read: |h, v| number(v, 1, 128, &mut h.max_sms),
    },
    HintKey {
        name: "slot_bytes",
        values: "a size from 64 to 64M, such as 256K",
        meaning: "Capacity of a slot, the largest message that is copied at once; longer ones go in several \
                  passes; by default 256K, 1M where ranks share no memory.",
        example: "256K",
        read: |h, v| {
            let bytes = size(v)?;
            match (64..=64 << 20).contains(&bytes) && bytes % 64 == 0 {
                true => h.slot_bytes = Some(bytes),
                false => return Err("it is out of range, or not a multiple of 64".into()),
            }
            Ok(())
        },
    },
    HintKey {
        name: "timeout",
        values: "a time from 1ms to 24h, such as 500ms, 30s or 2m",
        meaning: "How long a rank waits for another before it gives up with an error.",
        example: "30s",
        read: |h, v| {
            h.timeout = Some(time(v)?);
            Ok(())
        },
    },
    HintKey {
        name: "on_failure",
        values: "`error` or `shrink`",
        meaning: "What the next call does after one has failed: fail too (`error`, the default), or go on with the \
                  ranks that are left (`shrink`, docs/elastic.md), which have new numbers then.",
        example: "shrink",
        read: |h, v| {
            let values = [("error", OnFailure::Error), ("shrink", OnFailure::Shrink)];
            word(v, &values, &mut h.on_failure)
        },
    },
    HintKey {
        name: "suspended",
        values: "`refuse` or `resume`",
        meaning: "What calls do on a communicator that is suspended (docs/suspend.md): fail (`refuse`, the default), or \
                  resume it by themselves (`resume`). As it is when the ranks suspend, the same on all of them.",
        example: "resume",
        read: |h, v| {
            let values = [("refuse", SuspendedCalls::Refuse), ("resume", SuspendedCalls::Resume)];
            word(v, &values, &mut h.suspended)
        },
    },
    HintKey {
        name: "lazy",
        values: "`true` or `false`",
        meaning: "Connect to a peer when it is first needed, as communicators that are split off always do. \
                  Default `false`: to all when the communicator is made.",
        example: "true",
        read: |h, v| truth(v, &mut h.lazy),
    },
    HintKey {
        name: "doctor",
        values: "`true` or `false`",
        meaning: "Let `roundelay doctor --store` look at the ranks while they run, wherever they are: each process \
                  listens for it, and the store at which they met stays (docs/running.md). Default `false`.",
        example: "true",
        read: |h, v| truth(v, &mut h.doctor),
    },
    HintKey {
        name: "interface",
        values: "the name of a network interface, an address, or a network such as 10.0.0.0/8",
        meaning: "The interface that connections between hosts use. Default: the one that reaches the \
                  rendezvous.",
        example: "eth0",
        read: |h, v| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-:@/".contains(c);
            if v.is_empty() || v.len() > 64 || !v.chars().all(fits) {
                return Err("no interface has that name".into());
            }
            h.interface = Some(v.into());
            Ok(())
        },
    },
    HintKey {
        name: "ports",
        values: "a port, or a range as 50000-50999",
        meaning: "Listen at ports of this range only: ranks for each other, rank 0 for the rendezvous where no address \
                  of it is given, endpoints, and the board of a unique id. A process takes one for each of these and \
                  each path, and a communicator that is made anew one more. Default: any that is free.",
        example: "50000-50999",
        read: |h, v| {
            h.ports = Some(v.parse().map_err(|()| "it is no range of ports from 1 to 65535")?);
            Ok(())
        },
    },
    HintKey {
        name: "topology",
        values: "the path of a topology file",
        meaning: "What the paths between hosts are and can do, as `roundelay info --topology` and \
                  `roundelay tune --links` write it. All ranks need the same.",
        example: "cluster.toml",
        read: |h, v| {
            if !v.contains(char::is_alphanumeric) {
                return Err("it is no path of a file".into());
            }
            h.topology = Some(v.into());
            Ok(())
        },
    },
    HintKey {
        name: "paths",
        values: "interfaces as `interface` names them, or RDMA devices, several separated by commas",
        meaning: "The paths between hosts, the same list on all ranks: algorithms that split by bandwidth use \
                  all of them, and a call goes on over the others when one fails. With a topology file the \
                  names are those of its paths. Default: one, that of `interface`.",
        example: "mlx5_0,eth1",
        read: paths,
    },
    HintKey {
        name: "rdma_gid",
        values: "a number from 0 to 255",
        meaning: "The entry of an RDMA device's table of addresses to speak as (`show_gids` lists them). \
                  Default: the one of RoCE v2 over IPv4, else the first. It may differ between hosts.",
        example: "3",
        read: |h, v| number(v, 0, 255, &mut h.rdma_gid),
    },
    HintKey {
        name: "encryption",
        values: "`auto`, `required` or `off`",
        meaning: "Encrypt the connections of the ranks, and those to their store, by TLS 1.3 (docs/security.md): those between \
                  hosts where the job has a secret (`auto`), all of them (`required`, which takes a secret), or none. \
                  RDMA does not encrypt and is not used where they are; memory that the ranks of a host share is inside \
                  that host. A rank that does not agree is refused. The same on all ranks. Default `auto`.",
        example: "required",
        read: |h, v| word(v, &EncryptionMode::ALL, &mut h.encryption),
    },
    HintKey {
        name: "tls_cert",
        values: "the path of a file",
        meaning: "The chain of this rank's certificate in PEM, its own first (docs/security.md). \
                  With `tls_key` and `tls_ca` all connections are encrypted, and ranks know each \
                  other by certificates, beside a secret or in its place.",
        example: "rank.pem",
        read: |h, v| text(v, &mut h.tls_cert),
    },
    HintKey {
        name: "tls_key",
        values: "the path of a file",
        meaning: "The private key of `tls_cert`, in PEM.",
        example: "rank.key",
        read: |h, v| text(v, &mut h.tls_key),
    },
    HintKey {
        name: "tls_ca",
        values: "the path of a file",
        meaning: "The authorities whose certificates are accepted, in PEM.",
        example: "ca.pem",
        read: |h, v| text(v, &mut h.tls_ca),
    },
    HintKey {
        name: "tls_name",
        values: "a name as of a host",
        meaning: "The name that the certificate of every rank must have. The same on all ranks. \
                  Default `roundelay`.",
        example: "job.example",
        read: |h, v| text(v, &mut h.tls_name),
    },
    HintKey {
        name: "gpu_direct",
        values: "`true` or `false`",
        meaning: "Have RDMA devices move messages between hosts from GPU to GPU, where a probe comes through, and not \
                  by way of the hosts' memory (docs/rdma.md). It was never tried on hardware: `true` needs the feature \
                  `experimental`. Default `false`.",
        example: "false",
        read: |h, v| truth(v, &mut h.gpu_direct),
    },
];

fn paths(hints: &mut Hints, value: &str) -> Result<(), ValueError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:@/".contains(c);
    let mut list: Vec<String> = Vec::new();
    for name in value.split([',', '+']).map(str::trim) {
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(ValueError(format!("`{name}` is no interface or device")));
        }
        if list.iter().any(|known| known == name) {
            return Err(ValueError(format!("`{name}` is named twice")));
        }
        list.push(name.into());
    }
    if list.len() > MAX_PATHS as usize {
        return Err(ValueError(format!("there are at most {MAX_PATHS} paths")));
    }
    hints.paths = Some(list);
    Ok(())
}

/// Returns the row of a key.
pub(super) fn find(key: &str) -> Result<&'static HintKey, HintError> {
    if let Some(row) = TABLE.iter().find(|row| row.name == key) {
        return Ok(row);
    }
    let names = TABLE.iter().map(|row| row.name);
    Err(HintError::Key { key: key.into(), near: near(key, names) })
}

/// Returns `did you mean …?`, or all that there are.
fn near<'c>(name: &str, all: impl Iterator<Item = &'c str> + Clone) -> String {
    match similar(name, all.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", all.collect::<Vec<_>>().join(", ")),
    }
}

/// Reads a path or a name, which has a letter or a digit.
fn text(value: &str, to: &mut Option<String>) -> Result<(), ValueError> {
    if !value.contains(char::is_alphanumeric) {
        return Err("it is no name".into());
    }
    *to = Some(value.into());
    Ok(())
}

fn word<T: Copy>(value: &str, words: &[(&str, T)], into: &mut Option<T>) -> Result<(), ValueError> {
    match words.iter().find(|(word, _)| *word == value) {
        Some((_, found)) => {
            *into = Some(*found);
            Ok(())
        }
        None => Err(near(value, words.iter().map(|(word, _)| *word)).into()),
    }
}

fn truth(value: &str, into: &mut Option<bool>) -> Result<(), ValueError> {
    // torchcomms passes what Python's `str` makes of a truth value.
    let words = [
        ("true", true),
        ("false", false),
        ("True", true),
        ("False", false),
        ("1", true),
        ("0", false),
    ];
    word(value, &words, into).map_err(|_| near(value, ["true", "false"].into_iter()).into())
}

fn number(value: &str, from: u32, to: u32, into: &mut Option<u32>) -> Result<(), ValueError> {
    match value.parse() {
        Ok(number) if (from..=to).contains(&number) => {
            *into = Some(number);
            Ok(())
        }
        Ok(number) => Err(ValueError(format!("{number} is out of range"))),
        Err(_) => Err("it is no number".into()),
    }
}

fn size(value: &str) -> Result<u64, ValueError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match value[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        unit => return Err(ValueError(format!("`{unit}` is no unit of size; there are K and M"))),
    };
    let number: u64 = digits.parse().map_err(|_| "it is no size")?;
    number.checked_mul(1 << shift).ok_or_else(|| "it is out of range".into())
}

fn time(value: &str) -> Result<Duration, ValueError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &value[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => {
            return Err(ValueError(format!(
                "`{unit}` is no unit of time; there are ms, s, m and h"
            )));
        }
    };
    let number: f64 = digits.parse().map_err(|_| "it is no time")?;
    let seconds = number * unit;
    match (1e-3..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("it is out of range".into()),
    }
}

fn transport(hints: &mut Hints, value: &str) -> Result<(), ValueError> {
    let names = Transport::ALL.iter().map(|transport| transport.name());
    let mut all = TransportSet::NONE;
    for name in value.split([',', '+']).map(str::trim) {
        let Some(&transport) = Transport::ALL.iter().find(|known| known.name() == name) else {
            return Err(ValueError(format!("`{name}` is no transport, {}", near(name, names))));
        };
        if all.contains(transport) {
            return Err(ValueError(format!("`{name}` is named twice")));
        }
        all = all.with(transport);
    }
    hints.transport = Some(all);
    Ok(())
}

/// Returns the parts between the commas and semicolons that stand outside of parentheses.
fn separate(list: &str) -> impl Iterator<Item = &str> {
    let mut open = 0_usize;
    list.split(move |c: char| {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        open == 0 && matches!(c, ',' | ';')
    })
}

fn algorithm(hints: &mut Hints, value: &str) -> Result<(), ValueError> {
    for name in separate(value).map(str::trim) {
        let (collective, algorithm) = match name.split_once('.') {
            Some((collective, algorithm)) => (collective, algorithm),
            None => ("", name),
        };
        let names = COLLECTIVES.iter().map(|(name, _)| *name);
        if !collective.is_empty() && !names.clone().any(|n| n == collective) {
            return Err(ValueError(format!(
                "`{collective}` is no collective, {}",
                near(collective, names)
            )));
        }
        let of = |e: &&roundelay_algorithms::CatalogueEntry| {
            collective.is_empty() || e.collective == collective
        };
        let mut known: Vec<&str> = CATALOGUE.iter().filter(of).map(|e| e.name).collect();
        known.sort_unstable();
        known.dedup();
        let declared = algorithm.split_once('(').map_or(algorithm, |(name, _)| name.trim_end());
        if !known.contains(&declared) {
            let whose = if collective.is_empty() { "the algorithm library" } else { collective };
            let near = near(declared, known.iter().copied());
            return Err(ValueError(format!("{whose} has no algorithm `{declared}`, {near}")));
        }
        let entries = CATALOGUE.iter().filter(of).filter(|e| e.name == declared);
        let found = entries.map(|e| roundelay_algorithms::instance(e.collective, algorithm));
        // A name for all collectives is for those that have such parameters.
        let named = found.reduce(|first, next| first.or_else(|why| next.map_err(|_| why)));
        let algorithm = match named {
            Some(Ok(entry)) => entry.name,
            Some(Err(why)) => return Err(ValueError(why)),
            None => declared,
        };
        if hints.algorithm.insert(collective.into(), algorithm.into()).is_some() {
            return Err(match collective {
                "" => "two algorithms are named for all collectives".into(),
                _ => format!("two algorithms are named for {collective}").into(),
            });
        }
    }
    Ok(())
}
