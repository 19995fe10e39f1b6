//! Implements `roundelay lsp`: the language server over standard input and output.
//!
//! One thread answers, one proves. What is proved for a text that has changed since ends at the next rank count.

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use roundelay::internal::AlgorithmFiles;
use roundelay_dsl::diag::{ErrorCode as Code, codes};
use roundelay_lsp::{LanguageServer, ProofOutcome, ProofTask, RequestFault};
use serde_json::Value;

use crate::report::{VerbError, VerbResult, fault};

/// Runs the verb: until the editor says `exit`, or closes standard input.
pub(crate) fn lsp() -> VerbResult {
    let (connection, threads) = Connection::stdio();
    let mut server = LanguageServer::new(Box::new(AlgorithmFiles));
    let served = serve(&connection, &mut server);
    // Its threads end when nothing holds the channels any more.
    drop(connection);
    let ended = threads.join();
    served.and_then(|()| ended.map_err(failed))
}

fn error(code: Code, what: impl Into<String>) -> VerbError {
    VerbError::Run(fault(code, what))
}

/// Returns the error of a channel whose other end is gone.
fn failed(e: impl std::fmt::Display) -> VerbError {
    error(codes::WRITE, format!("the editor is gone: {e}"))
}

fn serve(connection: &Connection, server: &mut LanguageServer) -> VerbResult {
    let (id, params) = connection.initialize_start().map_err(failed)?;
    match server.initialize(params) {
        Ok(answer) => connection.initialize_finish(id, answer).map_err(failed)?,
        Err(fault) => {
            connection.sender.send(refusal(id, fault).into()).map_err(failed)?;
            return Err(error(codes::USAGE, "the editor's first message makes no sense"));
        }
    }
    let (asked, tasks) = unbounded::<ProofTask>();
    let (proved, outcomes) = unbounded::<ProofOutcome>();
    let prover = std::thread::Builder::new().name("prover".into());
    let prover = prover.spawn(move || prove(&tasks, &proved));
    let prover = prover.map_err(|e| error(codes::WORK, format!("no thread for proofs: {e}")))?;
    let served = answer_all(connection, server, &asked, &outcomes);
    drop((asked, outcomes));
    // It ends with its task: at the next rank count of one that is stale.
    drop(prover);
    served
}

/// Proves what comes, until nothing can come any more.
fn prove(tasks: &Receiver<ProofTask>, proved: &Sender<ProofOutcome>) {
    for task in tasks {
        if let Some(outcome) = task.run()
            && proved.send(outcome).is_err()
        {
            return;
        }
    }
}

/// Answers messages and takes proofs, whichever comes first.
fn answer_all(
    connection: &Connection,
    server: &mut LanguageServer,
    asked: &Sender<ProofTask>,
    outcomes: &Receiver<ProofOutcome>,
) -> VerbResult {
    let mut requests = 0;
    loop {
        select! {
            recv(connection.receiver) -> message => match message {
                Err(_) => return Ok(()),
                Ok(Message::Request(request)) => {
                    if connection.handle_shutdown(&request).map_err(failed)? {
                        return Ok(());
                    }
                    let answer = answered(server, request);
                    connection.sender.send(answer.into()).map_err(failed)?;
                }
                // A notification has no answer, so what is wrong with it goes to the log.
                Ok(Message::Notification(n)) => {
                    if let Err(fault) = server.notification(&n.method, n.params) {
                        log(connection, &n.method, &fault)?;
                    }
                }
                Ok(Message::Response(_)) => {}
            },
            recv(outcomes) -> outcome => match outcome {
                Ok(outcome) => server.take_outcome(outcome),
                Err(_) => return Err(error(codes::WORK, "the thread that proves has ended")),
            },
        }
        for task in server.take_proofs() {
            asked.send(task).map_err(failed)?;
        }
        for said in server.take_messages() {
            let message: Message = match said.is_request {
                true => {
                    requests += 1;
                    Request::new(RequestId::from(requests), said.method.into(), said.params).into()
                }
                false => Notification::new(said.method.into(), said.params).into(),
            };
            connection.sender.send(message).map_err(failed)?;
        }
    }
}

fn answered(server: &LanguageServer, request: Request) -> Response {
    match server.request(&request.method, request.params) {
        Ok(answer) => Response::new_ok(request.id, answer),
        Err(fault) => refusal(request.id, fault),
    }
}

fn refusal(id: RequestId, fault: RequestFault) -> Response {
    Response::new_err(id, fault.code, fault.message)
}

/// Writes a line to the editor's log.
fn log(connection: &Connection, method: &str, fault: &RequestFault) -> VerbResult {
    let text = format!("{method}: {}", fault.message);
    let kind = if fault.code == ErrorCode::InvalidParams as i32 { 1 } else { 2 };
    let params: Value = serde_json::json!({ "type": kind, "message": text });
    let said = Notification::new("window/logMessage".into(), params);
    connection.sender.send(said.into()).map_err(failed)
}
