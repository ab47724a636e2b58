//! What the client says, and what it is answered.

use super::analysis::{Analysis, Job};
use super::answers::{actions, completion, folding, hover, outline, places, rename, signature, tokens, workspace};
use super::documents::{Documents, Project};
use super::here::{Figures, Here, Refusal};
use super::uris;
use crate::Outcome;
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::{
    CodeActionKind, CodeActionParams, DidChangeTextDocumentParams, DidCloseTextDocumentParams,
    DidOpenTextDocumentParams, RenameParams, TextDocumentPositionParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::Sender;

/// One session.
pub(super) struct Server {
    documents: Documents,
    jobs: Sender<Job>,
    /// What is known of documents, by normal URI.
    known: BTreeMap<String, Known>,
    /// Documents that have findings in the editor.
    marked: BTreeSet<String>,
    /// Folders that the client has open.
    folders: Vec<PathBuf>,
    phase: Phase,
}

/// What the compiler said last of a document.
#[derive(Default)]
struct Known {
    /// Of which version of the text.
    version: i32,
    diagnostics: BTreeMap<String, Vec<Value>>,
    figures: Figures,
    imports: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Ready,
    Closing,
    Ended(Outcome),
}

type Answer = Result<Value, Refusal>;

impl Server {
    pub(super) fn new(jobs: Sender<Job>) -> Self {
        let (known, marked) = (BTreeMap::new(), BTreeSet::new());
        Self { documents: Documents::default(), jobs, known, marked, folders: Vec::new(), phase: Phase::New }
    }

    /// How the session ended, if it has.
    pub(super) fn ended(&self) -> Option<Outcome> {
        if let Phase::Ended(outcome) = self.phase { Some(outcome) } else { None }
    }

    /// Takes a message, and returns what to send. A panic ends the answer, and not the session.
    pub(super) fn take(&mut self, message: Message) -> Vec<Message> {
        match message {
            Message::Request(request) => {
                let id = request.id.clone();
                let answer = catch_unwind(AssertUnwindSafe(|| self.answer(request)));
                let answer = answer.unwrap_or_else(|_| {
                    Err(Refusal(ErrorCode::InternalError, "this is a bug in pipec, please report it".to_owned()))
                });
                vec![reply(id, answer)]
            }
            Message::Notification(note) => catch_unwind(AssertUnwindSafe(|| self.notice(note))).unwrap_or_default(),
            Message::Response(_) => Vec::new(),
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        match (self.phase, request.method.as_str()) {
            (Phase::New, "initialize") => {
                self.phase = Phase::Ready;
                self.folders = folders(&request.params);
                return Ok(abilities());
            }
            (Phase::New, _) => {
                return Err(Refusal(ErrorCode::ServerNotInitialized, "`initialize` comes first".to_owned()));
            }
            (Phase::Ready, "shutdown") => {
                self.phase = Phase::Closing;
                return Ok(Value::Null);
            }
            (Phase::Ready, _) => {}
            (Phase::Closing | Phase::Ended(_), _) => {
                return Err(Refusal(ErrorCode::InvalidRequest, "the session was shut down".to_owned()));
            }
        }
        let params = request.params;
        match request.method.as_str() {
            "textDocument/hover" => self.at(params, |here| Ok(hover::hover(here))),
            "textDocument/definition" => self.at(params, |here| Ok(places::definition(here))),
            "textDocument/completion" => self.at(params, |here| Ok(completion::complete(here))),
            "textDocument/prepareRename" => self.at(params, rename::prepare),
            "textDocument/references" => {
                let own = params["context"]["includeDeclaration"].as_bool().unwrap_or(true);
                let projects = self.projects();
                self.at(params, |here| Ok(places::references(here, &projects, own)))
            }
            "textDocument/rename" => {
                let wanted: RenameParams = read(params.clone())?;
                let projects = self.projects();
                self.at(params, |here| rename::rename(here, &projects, &wanted.new_name))
            }
            "textDocument/codeAction" => {
                let wanted: CodeActionParams = read(params.clone())?;
                self.whole(&params, |here| Ok(actions::actions(here, &wanted)))
            }
            "textDocument/formatting" => self.whole(&params, |here| Ok(outline::formatting(here))),
            "textDocument/foldingRange" => self.whole(&params, |here| Ok(folding::folding(here))),
            "textDocument/semanticTokens/full" => self.whole(&params, |here| Ok(tokens::tokens(here))),
            "textDocument/signatureHelp" => self.at(params, |here| Ok(signature::help(here))),
            "workspace/symbol" => {
                let query = params["query"].as_str().unwrap_or_default();
                let projects = self.projects();
                Ok(workspace::symbols(&projects, &self.folders, query))
            }
            "textDocument/documentSymbol" => self.whole(&params, |here| Ok(outline::symbols(here))),
            "textDocument/inlayHint" => self.whole(&params, |here| Ok(outline::hints(here))),
            other => Err(Refusal(ErrorCode::MethodNotFound, format!("`{other}` is not known here"))),
        }
    }

    /// Answers about a place.
    fn at(&mut self, params: Value, answer: impl FnOnce(&Here<'_>) -> Answer) -> Answer {
        let place: TextDocumentPositionParams = read(params)?;
        self.with(place.text_document.uri.as_str(), |here| {
            let lines = here.project.lines(pipe_syntax::source::FileId(0));
            let byte = lines.byte(&here.document.text, place.position);
            answer(&Here { byte, project: here.project.clone(), ..*here })
        })
    }

    /// Answers about a whole document.
    fn whole(&mut self, params: &Value, answer: impl FnOnce(&Here<'_>) -> Answer) -> Answer {
        let uri = params["textDocument"]["uri"].as_str();
        self.with(uri.ok_or_else(|| Refusal(ErrorCode::InvalidParams, "no document is named".to_owned()))?, answer)
    }

    fn with(&mut self, uri: &str, answer: impl FnOnce(&Here<'_>) -> Answer) -> Answer {
        let project = self.documents.project(uri);
        let (Some(project), Some(document)) = (project, self.documents.get(uri)) else {
            return Err(Refusal(ErrorCode::InvalidParams, format!("`{uri}` is not open")));
        };
        let nothing = Known::default();
        let known = self.known.get(&uris::normal(uri)).unwrap_or(&nothing);
        let findings = known.diagnostics.get(&document.uri).map_or(&[][..], Vec::as_slice);
        let is_fresh = known.version == document.version;
        answer(&Here { document, project, byte: 0, figures: &known.figures, findings, is_fresh })
    }

    /// Everything that is open, with what it imports.
    fn projects(&mut self) -> Vec<Rc<Project>> {
        self.documents.uris().iter().filter_map(|uri| self.documents.project(uri)).collect()
    }

    fn notice(&mut self, note: Notification) -> Vec<Message> {
        match note.method.as_str() {
            "exit" => {
                let clean = self.phase == Phase::Closing;
                self.phase = Phase::Ended(if clean { Outcome::Accepted } else { Outcome::Rejected });
            }
            "textDocument/didOpen" => {
                if let Ok(opened) = read::<DidOpenTextDocumentParams>(note.params) {
                    let document = opened.text_document;
                    self.documents.open(document.uri.as_str(), document.text, document.version);
                    self.changed(document.uri.as_str());
                }
            }
            "textDocument/didChange" => {
                if let Ok(changed) = read::<DidChangeTextDocumentParams>(note.params) {
                    let document = changed.text_document;
                    self.documents.change(document.uri.as_str(), document.version, changed.content_changes);
                    self.changed(document.uri.as_str());
                }
            }
            "textDocument/didClose" => {
                if let Ok(closed) = read::<DidCloseTextDocumentParams>(note.params) {
                    let uri = uris::normal(closed.text_document.uri.as_str());
                    self.documents.close(&uri);
                    self.known.remove(&uri);
                    self.changed(&uri);
                    return self.mark();
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// Has a document compiled, and every other one that imports it.
    fn changed(&mut self, uri: &str) {
        let (key, path) = (uris::normal(uri), uris::to_path(uri));
        let imports = |known: &Known| path.as_ref().is_some_and(|path| known.imports.contains(path));
        let others = self.known.iter().filter(|(other, known)| **other != key && imports(known));
        for uri in std::iter::once(&key).chain(others.map(|(other, _)| other)) {
            if let (Some(root), Some(document)) = (self.documents.root(uri), self.documents.get(uri)) {
                // Without a compiler, which ended with a panic of ours, requests are still answered.
                let _ = self.jobs.send(Job { root, version: document.version });
            }
        }
    }

    /// Shows what the compiler found, unless the text has changed meanwhile.
    pub(super) fn publish(&mut self, analysis: Analysis) -> Vec<Message> {
        if self.documents.get(&analysis.uri).is_none_or(|document| document.version != analysis.version) {
            return Vec::new();
        }
        let known = self.known.entry(analysis.uri).or_default();
        let is_news = analysis.figures.is_some();
        known.version = analysis.version;
        known.diagnostics = analysis.diagnostics;
        known.imports = analysis.imports;
        if let Some(figures) = analysis.figures {
            known.figures = figures;
        }
        let mut messages = self.mark();
        if is_news {
            let id = RequestId::from("pipec/hints".to_owned());
            messages.push(Request::new(id, "workspace/inlayHint/refresh".to_owned(), Value::Null).into());
        }
        messages
    }

    /// Findings of all documents: those of an imported file may come from several.
    fn mark(&mut self) -> Vec<Message> {
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (uri, found) in self.known.values().flat_map(|known| &known.diagnostics) {
            let list = all.entry(self.documents.spelled(uri)).or_default();
            found.iter().for_each(|one| {
                if !list.contains(one) {
                    list.push(one.clone())
                }
            });
        }
        for uri in std::mem::take(&mut self.marked) {
            all.entry(uri).or_default();
        }
        self.marked = all.iter().filter(|(_, found)| !found.is_empty()).map(|(uri, _)| uri.clone()).collect();
        let message = |(uri, found): (String, Vec<Value>)| {
            let version = self.documents.get(&uri).map(|document| document.version);
            let params = json!({"uri": uri, "version": version, "diagnostics": found});
            Notification::new("textDocument/publishDiagnostics".to_owned(), params).into()
        };
        all.into_iter().map(message).collect()
    }
}

/// The folders that a client says it has open.
fn folders(initialize: &Value) -> Vec<PathBuf> {
    let several = initialize["workspaceFolders"].as_array().into_iter().flatten().map(|folder| &folder["uri"]);
    let several: Vec<&Value> = several.collect();
    let named = if several.is_empty() { vec![&initialize["rootUri"]] } else { several };
    named.into_iter().filter_map(|uri| uri.as_str().and_then(uris::to_path)).collect()
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    serde_json::from_value(params).map_err(|error| Refusal(ErrorCode::InvalidParams, error.to_string()))
}

fn reply(id: RequestId, answer: Answer) -> Message {
    match answer {
        Ok(value) => Response::new_ok(id, value).into(),
        Err(Refusal(code, reason)) => Response::new_err(id, code as i32, reason).into(),
    }
}

/// What the server can do, as the client is told.
fn abilities() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": true, "change": 2},
            "hoverProvider": true,
            "definitionProvider": true,
            "referencesProvider": true,
            "completionProvider": {"triggerCharacters": [".", "("]},
            "renameProvider": {"prepareProvider": true},
            "codeActionProvider": {"codeActionKinds": [CodeActionKind::QUICKFIX, actions::FIX_ALL]},
            "documentFormattingProvider": true,
            "documentSymbolProvider": true,
            "workspaceSymbolProvider": true,
            "foldingRangeProvider": true,
            "signatureHelpProvider": {"triggerCharacters": ["(", ","]},
            "semanticTokensProvider": {"legend": tokens::legend(), "full": true},
            "inlayHintProvider": true,
        },
        "serverInfo": {"name": "pipec", "version": env!("CARGO_PKG_VERSION")},
    })
}
