//! Tests that a secret of the environment keeps others out, whatever its bytes, and is never taken for none.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Stdio};

use roundelay_tests::port;

use crate::support::{RunOutput, command, file};

/// Starts a rank of a job of two.
fn rank(rank: &str, store: &str, variables: &[(&str, &OsStr)]) -> Child {
    let args =
        ["run", "all_reduce", "--size", "2", "--transport", "tcp", "--bytes", "64", "--iters", "2"];
    let mut command = command(&args);
    command.args(["--rank", rank, "--store", store, "--timeout", "5s"]);
    command.env_remove("ROUNDELAY_SECRET").env_remove("ROUNDELAY_SECRET_FILE");
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Runs both ranks, each with variables of its own.
fn both(variables: [&[(&str, &OsStr)]; 2]) -> [RunOutput; 2] {
    let store = format!("127.0.0.1:{}", port());
    let [zero, one] = variables;
    let ranks = [rank("0", &store, zero), rank("1", &store, one)];
    ranks.map(|child| RunOutput::of(child.wait_with_output().expect("its output")))
}

const BYTES: &[u8] = b"\xff\xfe\x80secret";

#[test]
fn a_secret_of_any_bytes_keeps_others_out() {
    let secret: &[(&str, &OsStr)] = &[("ROUNDELAY_SECRET", OsStr::from_bytes(BYTES))];
    let other: &[(&str, &OsStr)] =
        &[("ROUNDELAY_SECRET", OsStr::from_bytes(b"\xff\xfe\x81secret"))];
    for stranger in [&[][..], other] {
        let [zero, one] = both([secret, stranger]);
        one.fails(3, &["secret"]);
        zero.fails(3, &["rank 1 has not come", "has refused 1 connection with another secret"]);
    }
    let path = file("secret_of_a_job", [BYTES, b"\n"].concat());
    let of_file: &[(&str, &OsStr)] = &[("ROUNDELAY_SECRET_FILE", path.as_ref())];
    both([secret, of_file]).into_iter().for_each(|ran| drop(ran.ok()));
}

#[test]
fn a_secret_that_cannot_be_had_is_an_error() {
    let pipe = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("secret_pipe");
    // One of a run before.
    let _ = std::fs::remove_file(&pipe);
    let pipe = pipe.display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()));
    let (long, empty) = (file("secret_long", vec![b'x'; 4097]), file("secret_empty", "\n"));
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[("ROUNDELAY_SECRET", "")], "the secret is empty"),
        (&[("ROUNDELAY_SECRET_FILE", "")], "cannot be read"),
        (&[("ROUNDELAY_SECRET_FILE", "/nowhere/secret")], "/nowhere/secret"),
        (&[("ROUNDELAY_SECRET_FILE", &pipe)], "not a regular file"),
        (&[("ROUNDELAY_SECRET_FILE", &long)], "too long"),
        (&[("ROUNDELAY_SECRET_FILE", &empty)], "the secret is empty"),
        (&[("ROUNDELAY_SECRET_FILE", &long), ("ROUNDELAY_SECRET", "a")], "both set"),
    ];
    for (variables, text) in cases {
        let variables: Vec<_> = variables.iter().map(|&(name, v)| (name, OsStr::new(v))).collect();
        let ran = rank("0", "127.0.0.1:9", &variables).wait_with_output().expect("its output");
        RunOutput::of(ran).fails(3, &[text]);
    }
}

#[test]
fn local_jobs_have_a_secret_of_their_own() {
    // The ranks of a launcher meet at a store where they share no memory.
    for secret in [None, Some("given")] {
        let args =
            ["run", "all_reduce", "-n", "2", "--transport", "tcp", "--bytes", "64", "--iters", "2"];
        let mut command = command(&args);
        command.env_remove("ROUNDELAY_SECRET_FILE");
        match secret {
            Some(secret) => command.env("ROUNDELAY_SECRET", secret),
            None => command.env_remove("ROUNDELAY_SECRET"),
        };
        RunOutput::of(command.output().expect("the binary runs")).ok();
    }
}

#[test]
fn a_secret_for_a_job_is_random() {
    let secret = || crate::support::roundelay(&["secret"]).ok().out;
    let (one, other) = (secret(), secret());
    assert_ne!(one, other);
    let digits = one.trim_end();
    assert_eq!(digits.len(), 64, "{one}");
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
}

#[test]
fn ranks_encrypt_together_or_not_at_all() {
    let secret = ("ROUNDELAY_SECRET", OsStr::from_bytes(BYTES));
    let hint = |hint| ("ROUNDELAY_HINTS", OsStr::new(hint));
    let required = hint("encryption=required");
    let (auto, off) = (hint("encryption=auto"), hint("encryption=off"));
    for mode in [required, auto, off] {
        for ran in both([&[secret, mode], &[secret, mode]]) {
            ran.ok();
        }
    }
    // Whichever side does not encrypt, the one that comes to the store gets the reason.
    for [zero, one] in
        [[required, off], [off, required], [auto, off], [off, auto], [required, auto]]
    {
        let [zero, one] = both([&[secret, zero], &[secret, one]]);
        one.fails(3, &["one side encrypts and the other does not", "hint `encryption`"]);
        zero.fails(3, &["rank 1 has not come"]);
    }
    let [zero, one] = both([&[required], &[required]]);
    zero.fails(3, &["`encryption=required` takes a secret", "ROUNDELAY_SECRET"]);
    one.fails(3, &["`encryption=required` takes a secret"]);
}

#[test]
fn what_is_encrypted_is_said() {
    let route = |variables: &[(&str, &OsStr)], transport: &str| {
        let mut command = command(&["route", "-n", "2", "--hosts", "2", "--transport", transport]);
        command.env_remove("ROUNDELAY_SECRET").envs(variables.iter().copied());
        RunOutput::of(command.output().expect("the binary runs"))
    };
    let secret = ("ROUNDELAY_SECRET", OsStr::from_bytes(BYTES));
    let required = ("ROUNDELAY_HINTS", OsStr::new("encryption=required"));
    let text = route(&[secret, required], "tcp").ok().out;
    assert!(text.contains("rank 0 -> rank 1: tcp, encrypted"), "{text}");
    let text = route(&[secret], "tcp").ok().out;
    assert!(text.contains("rank 0 -> rank 1: tcp, encrypted"), "{text}");
    let off = ("ROUNDELAY_HINTS", OsStr::new("encryption=off"));
    for plain in [&[secret, off][..], &[]] {
        let text = route(plain, "tcp").ok().out;
        assert!(text.contains("rank 0 -> rank 1: tcp (") && !text.contains("encrypted"), "{text}");
    }
    // Devices write to memory of other hosts as it is.
    for variables in [&[secret, required][..], &[secret]] {
        let refused = route(variables, "rdma");
        assert_ne!(refused.code, 0, "{}", refused.out);
        assert!(refused.err.contains("RDMA does not encrypt"), "{}", refused.err);
    }
    let said = |verb: &[&str], variables: &[(&str, &OsStr)]| {
        let mut command = command(verb);
        command.env_remove("ROUNDELAY_SECRET").envs(variables.iter().copied());
        RunOutput::of(command.output().expect("the binary runs")).ok().out
    };
    let explain = ["explain", "all_reduce", "-n", "4", "--hosts", "2"];
    let note = "the connections that carry it are encrypted";
    assert!(said(&explain, &[secret]).contains(note));
    assert!(said(&explain, &[secret, required]).contains(note));
    assert!(!said(&explain, &[secret, off]).contains(note) && !said(&explain, &[]).contains(note));
    assert!(!said(&["explain", "all_reduce", "-n", "4"], &[secret]).contains(note));
    assert!(said(&["info"], &[secret]).contains("auto: connections between hosts encrypted"));
    assert!(said(&["info"], &[secret, required]).contains("required: all connections encrypted"));
    assert!(said(&["info"], &[]).contains("auto: no connection encrypted"));
}
