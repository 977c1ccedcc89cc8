use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn read(command_line: &str, module: &str) -> Config {
    Config::read(command_line, Some(module.as_bytes()))
        .unwrap_or_else(|refused| panic!("{}", refused.refusal))
}

fn refuse(command_line: &str, module: Option<&[u8]>) -> String {
    match Config::read(command_line, module) {
        Ok(config) => panic!("{command_line:?} and {module:?} were taken: {config:?}"),
        Err(refused) => refused.refusal.to_string(),
    }
}

/// What the console says about a bad command line, without the second line, which is the command line.
fn refuse_words(command_line: &str) -> String {
    let text = refuse(command_line, None);
    let (first, second) = text.split_once('\n').unwrap();
    assert_eq!(second, command_line);
    first.strip_prefix("sluice refused: command line: ").unwrap().to_string()
}

const STACK: &str = stack::ALLOWED;
const KEYS: &str = "program=, workers=, tx=, idle=, rx=, stack=, log=, on-panic=, ring=, batch=";

#[test]
fn nothing_said_is_the_default() {
    let config = Config::read("", None).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.program, Program::Forward);
    assert_eq!(config.workers, Workers::All);
    assert_eq!(config.tx, Wish::Auto);
    assert_eq!((config.idle, config.rx), (IdleMode::Adaptive, RxMode::Hardware));
    assert_eq!(config.log, LevelFilter::Info);
    assert_eq!(config.on_panic, OnPanic::Reboot);
    assert_eq!((config.ring, config.batch), (256, 32));
    assert_eq!(read(" \t ", "# nothing\n\n"), Config::default());
}

#[test]
fn every_word_is_read() {
    let config = Config::read(
        "program=reflect\tworkers=3  tx=shared idle=poll rx=software stack=none log=debug on-panic=exit ring=1024 batch=64",
        None,
    )
    .unwrap();
    assert_eq!(config.program, Program::Reflect);
    assert_eq!(config.workers, Workers::Count(3));
    assert_eq!(config.tx, Wish::Shared);
    assert_eq!((config.idle, config.rx), (IdleMode::Poll, RxMode::Software));
    assert_eq!(config.log, LevelFilter::Debug);
    assert_eq!(config.on_panic, OnPanic::Exit);
    assert_eq!((config.ring, config.batch), (1024, 64));
}

#[test]
fn every_allowed_value_is_taken() {
    let values = [
        (Key::Program, "drop pass reflect forward"),
        (Key::Workers, "all 1 2 256"),
        (Key::Tx, "auto dedicated shared shared:1 shared:256 borrowed"),
        (Key::Idle, "adaptive poll"),
        (Key::Rx, "hardware software"),
        (Key::Stack, "none 192.0.2.1/24 192.0.2.1/24,1@2001:db8::1/64"),
        (Key::Log, "error warn info debug trace"),
        (Key::OnPanic, "reboot exit"),
        (Key::Ring, "64 128 256 512 1024 2048 4096"),
        (Key::Batch, "1 32 33 64"),
    ];
    assert_eq!(values.map(|(key, _)| key), Key::ALL);
    for (key, values) in values {
        for value in values.split(' ') {
            let word = format!("{}={value}", key.name());
            Config::read(&word, None).unwrap_or_else(|refused| panic!("{}", refused.refusal));
            let line = format!("{} = \"{value}\"\n", key.name());
            read("", &line);
        }
    }
}

#[test]
fn a_value_that_does_not_parse_is_refused_with_what_is_allowed() {
    for (word, refusal) in [
        ("program=fwd", r#"program: unknown value "fwd"; allowed: drop, pass, reflect, forward"#),
        ("program=", r#"program: unknown value ""; allowed: drop, pass, reflect, forward"#),
        ("program=Drop", r#"program: unknown value "Drop"; allowed: drop, pass, reflect, forward"#),
        ("workers=0", r#"workers: unknown value "0"; allowed: all, or a number from 1 to 256"#),
        ("workers=257", r#"workers: unknown value "257"; allowed: all, or a number from 1 to 256"#),
        ("workers=-1", r#"workers: unknown value "-1"; allowed: all, or a number from 1 to 256"#),
        ("workers=", r#"workers: unknown value ""; allowed: all, or a number from 1 to 256"#),
        (
            "workers=99999999999999999999",
            r#"workers: unknown value "99999999999999999999"; allowed: all, or a number from 1 to 256"#,
        ),
        ("tx=shared:0", &format!("tx: unknown value \"shared:0\"; allowed: {}", Key::Tx.allowed())),
        (
            "tx=both",
            r#"tx: unknown value "both"; allowed: auto, dedicated, shared, shared:N with N from 1 to 256 cores a queue, borrowed"#,
        ),
        ("idle=sleep", r#"idle: unknown value "sleep"; allowed: adaptive, poll"#),
        ("rx=none", r#"rx: unknown value "none"; allowed: hardware, software"#),
        ("stack=lwip", &format!("stack: item 1: it has no /PREFIX; allowed: {STACK}")),
        ("log=all", r#"log: unknown value "all"; allowed: error, warn, info, debug, trace"#),
        ("on-panic=halt", r#"on-panic: unknown value "halt"; allowed: reboot, exit"#),
        ("ring=100", r#"ring: unknown value "100"; allowed: a power of two from 64 to 4096"#),
        ("ring=32", r#"ring: unknown value "32"; allowed: a power of two from 64 to 4096"#),
        ("ring=8192", r#"ring: unknown value "8192"; allowed: a power of two from 64 to 4096"#),
        ("ring=+256", r#"ring: unknown value "+256"; allowed: a power of two from 64 to 4096"#),
        ("batch=0", r#"batch: unknown value "0"; allowed: a number from 1 to 64"#),
        ("batch=65", r#"batch: unknown value "65"; allowed: a number from 1 to 64"#),
        ("batch=1=2", r#"batch: unknown value "1=2"; allowed: a number from 1 to 64"#),
    ] {
        assert_eq!(refuse_words(word), refusal);
    }
}

#[test]
fn a_word_that_is_no_setting_is_refused() {
    assert_eq!(refuse_words("ring=64 quiet"), format!("quiet: not of the form key=value; allowed: {KEYS}"));
    assert_eq!(refuse_words("ring=64 rings=64"), format!("rings: unknown key; allowed: {KEYS}"));
    assert_eq!(refuse_words("=64"), format!(": unknown key; allowed: {KEYS}"));
    assert_eq!(refuse_words("Ring=64"), format!("Ring: unknown key; allowed: {KEYS}"));
}

#[test]
fn a_word_given_twice_is_refused_even_with_the_same_value() {
    assert_eq!(refuse_words("batch=8 ring=64 batch=8"), "batch: given twice; allowed: each key once");
}

#[test]
fn a_command_line_that_is_too_long_is_refused() {
    let line = format!("ring=64{}", " ".repeat(MAX_COMMAND_LINE));
    let text = refuse(&line, None);
    assert!(text.starts_with(
        "sluice refused: command line: length: 2055 bytes are too many; allowed: 2048 bytes\nring=64"
    ));
    assert!(text.ends_with("…"), "the line is shown in part");
    assert!(Config::read(&line[..MAX_COMMAND_LINE], None).is_ok());
}

#[test]
fn the_first_mistake_is_the_one_that_is_shown() {
    assert!(refuse_words("batch=x ring=x").starts_with("batch:"));
    assert!(refuse("batch=x", Some(b"ring = 1")).contains("command line: batch:"));
}

#[test]
fn on_panic_is_honoured_when_something_else_is_refused() {
    for (command_line, module) in [
        ("on-panic=exit ring=x", None),
        ("ring=x on-panic=exit", None),
        ("quiet on-panic=exit", None),
        ("ring=64 ring=64 on-panic=exit", None),
        ("ring=x", Some("on-panic = \"exit\"")),
        ("on-panic=exit", Some("ring = ")),
        ("", Some("ring = [1]\non-panic = 'exit'")),
        ("", Some("ring = = 3\non-panic = 'exit'")),
        ("on-panic=exit on-panic=reboot", None),
        ("on-panic=what", Some("on-panic = \"exit\"")),
    ] {
        let refused = Config::read(command_line, module.map(str::as_bytes)).unwrap_err();
        assert_eq!(refused.on_panic, OnPanic::Exit, "{command_line:?} {module:?}");
    }
    assert_eq!(Config::read("ring=x", None).unwrap_err().on_panic, OnPanic::Reboot);
}

#[test]
fn the_command_line_wins_over_the_module() {
    let module = "program = \"drop\"\nring = 64\n";
    let config = read("program=pass batch=3", module);
    assert_eq!((config.program, config.ring, config.batch), (Program::Pass, 64, 3));
    assert!(
        refuse("ring=64", Some(b"ring = 63")).contains("module line 1"),
        "but does not hide its mistakes"
    );
}

#[test]
fn a_module_is_toml() {
    let config = read(
        "",
        "# Sluice\r\nprogram = 'reflect' # swap\r\n\"ring\" = 1_024\r\nworkers = 'all'\nbatch=8\nlog = \"\\u0077arn\"",
    );
    assert_eq!((config.program, config.ring, config.batch), (Program::Reflect, 1024, 8));
    assert_eq!((config.workers, config.log), (Workers::All, LevelFilter::Warn));
}

#[test]
fn padding_after_a_module_is_ignored() {
    let mut module = b"ring = 64\n".to_vec();
    module.resize(4096, 0);
    assert_eq!(Config::read("", Some(&module)).unwrap().ring, 64);
}

#[test]
fn a_bad_module_is_refused_with_its_line() {
    let cases: [(&str, &str, &str); 14] = [
        (
            "program = \"drop\"\nring = 100 # entries\n",
            r#"module line 2: ring: unknown value "100"; allowed: a power of two from 64 to 4096"#,
            "ring = 100 # entries",
        ),
        ("\n\nrings = 64", &format!("module line 3: rings: unknown key; allowed: {KEYS}"), "rings = 64"),
        (
            "ring.size = 64",
            &format!("module line 1: ring.size: unknown key; allowed: {KEYS}"),
            "ring.size = 64",
        ),
        (
            "batch = 4\r\nring = 64\r\nbatch = 8\r\n",
            "module line 3: batch: given twice; allowed: each key once",
            "batch = 8",
        ),
        (
            "ring = true",
            r#"module line 1: ring: unknown value "true"; allowed: a power of two from 64 to 4096"#,
            "ring = true",
        ),
        (
            "batch = 1.5",
            r#"module line 1: batch: unknown value "1.5"; allowed: a number from 1 to 64"#,
            "batch = 1.5",
        ),
        (
            "workers = [1, 2]",
            r#"module line 1: workers: unknown value "[…]"; allowed: all, or a number from 1 to 256"#,
            "workers = [1, 2]",
        ),
        (
            "tx = { mode = \"shared\" }",
            r#"module line 1: tx: unknown value "{…}"; allowed: auto, dedicated, shared, shared:N with N from 1 to 256 cores a queue, borrowed"#,
            "tx = { mode = \"shared\" }",
        ),
        (
            "ring = 64\n[forwarder]\nbatch = 900\n",
            &format!("module line 2: [forwarder]: a table; allowed: {KEYS}"),
            "[forwarder]",
        ),
        ("[[port]]\n", &format!("module line 1: [[port]]: a table; allowed: {KEYS}"), "[[port]]"),
        (
            "rx = \"firmware\"",
            r#"module line 1: rx: unknown value "firmware"; allowed: hardware, software"#,
            "rx = \"firmware\"",
        ),
        ("ring 64", "", "ring 64"),
        ("ring = 64\nprogram = drop\n", "", "program = drop"),
        ("ring = 64 batch = 8", "", "ring = 64 batch = 8"),
    ];
    for (module, refusal, line) in cases {
        let text = refuse("", Some(module.as_bytes()));
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(second, line, "{text}");
        let number = module.lines().position(|candidate| candidate == line).unwrap() + 1;
        let syntax = format!("module line {number}: syntax: ");
        let first = first.strip_prefix("sluice refused: ").unwrap();
        match refusal {
            "" => assert!(first.starts_with(&syntax) && first.contains("; allowed: "), "{first}"),
            _ => assert_eq!(first, refusal),
        }
    }
}

#[test]
fn a_module_that_is_no_text_is_refused() {
    assert_eq!(
        refuse("", Some(b"ring = 64\nlog = \"\xff\"\n")),
        "sluice refused: module line 2: encoding: byte 0xff is not UTF-8; allowed: UTF-8\nlog = \""
    );
    let module = std::vec![b'#'; MAX_MODULE + 1];
    assert!(refuse("", Some(&module)).contains("length: 65537 bytes are too many; allowed: 65536 bytes"));
}

#[test]
fn a_refusal_is_two_lines_and_does_nothing_to_a_terminal() {
    let text = refuse("pro\x1b[2Jgram=\x07drop", None);
    assert_eq!(text.lines().count(), 2);
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
}

#[test]
fn as_many_workers_as_there_are_cores() {
    let count = |words: &str, cores| Config::read(words, None).unwrap().worker_count(cores);
    assert_eq!(count("", 7), Ok(7));
    assert_eq!(count("workers=all", 1), Ok(1));
    assert_eq!(count("workers=2", 2), Ok(2));
    assert_eq!(
        count("workers=3 ring=64", 2).unwrap_err().to_string(),
        "sluice refused: command line: workers: 3 workers and 2 cores; allowed: all, or 1 to 2\nworkers=3 ring=64"
    );
    let config = read("ring=64", "\nworkers = 3\n");
    assert_eq!(
        config.worker_count(1).unwrap_err().to_string(),
        "sluice refused: module line 2: workers: 3 workers and 1 cores; allowed: all, or 1 to 1\nworkers = 3"
    );
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(command_line in ".{0,80}", module in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = Config::read(&command_line, Some(&module));
    }

    #[test]
    fn near_misses_of_toml_are_read_or_refused_in_two_lines(
        parts in prop::collection::vec(
            prop::sample::select(std::vec![
                "ring", "batch", " = ", "=", "64", "\"", "'", "[", "]", "{", "}", ".", ",", "#", "\n", "\r\n", "\"\"\"",
                "0x10", "1e3", "1979-05-27", "true", "\\u0041", "on-panic = 'exit'\n", "é",
            ]),
            0..24,
        ),
    ) {
        let module: Vec<&str> = parts;
        if let Err(refused) = Config::read("", Some(module.concat().as_bytes())) {
            let text = refused.refusal.to_string();
            prop_assert_eq!(text.matches('\n').count(), 1, "{:?}", text);
            prop_assert!(text.contains("; allowed: "));
        }
    }
}
