//! Tests of the program `roundelay`, run as its users run it. One program for all: each would link everything once
//! more.

mod atlas;
mod bench;
mod budget;
mod chaos;
mod choice;
mod doctor;
mod fail;
mod figures;
mod gpu;
mod hosts;
mod inputs;
mod json;
mod lsp;
mod outputs;
mod paths;
mod ports;
mod run;
mod secrets;
mod strangers;
mod support;
mod trace;
mod verbs;
mod verdicts;
