//! The server: one page and its changes, for this machine only.

use super::board::Board;
use crate::drawing::html::{self, Shown};
use crate::output::{Failure, print_error};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response};

/// How long a request for changes waits for one.
const WAIT: Duration = Duration::from_secs(20);

/// What follows the picture in the page.
const FOLLOW: &str = include_str!("../../drawing/page/watch.js");

/// A server that has its port.
pub(crate) struct Server {
    http: tiny_http::Server,
    address: SocketAddr,
}

/// Takes a port. Fails if it cannot be had.
pub(crate) fn bind(address: SocketAddr) -> Result<Server, Failure> {
    let failed = |error| Failure::Usage(format!("{address} cannot be served: {error}"));
    let http = tiny_http::Server::http(address).map_err(failed)?;
    let address = http.server_addr().to_ip().unwrap_or(address);
    Ok(Server { http, address })
}

impl Server {
    /// Where it is.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers in threads of its own, as long as the process lives.
    pub(crate) fn serve(self, title: &str, board: &Arc<Board>) {
        let mut page = Vec::new();
        html::write(title, &Shown::Script(FOLLOW), &mut page).expect("writing to memory cannot fail");
        let (page, board) = (Arc::new(page), Arc::clone(board));
        std::thread::spawn(move || {
            for request in self.http.incoming_requests() {
                let (page, board) = (Arc::clone(&page), Arc::clone(&board));
                // A request for changes waits, and others do not wait for it.
                std::thread::spawn(move || answer(request, self.address, &page, &board));
            }
        });
    }
}

fn answer(request: Request, address: SocketAddr, page: &[u8], board: &Board) {
    let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
    let (status, kind, body) = match (request.method(), path) {
        // Pages from elsewhere that have a name point here do not get to see what is served.
        _ if !is_meant(&request, address) => (403, "text/plain", b"this page is at 127.0.0.1\n".to_vec()),
        (Method::Get, "/") => (200, "text/html; charset=utf-8", page.to_vec()),
        (Method::Get, "/changes") => {
            let seen = query.strip_prefix("after=").and_then(|number| number.parse().ok()).unwrap_or(0);
            (200, "application/json", board.since(seen, WAIT).into_bytes())
        }
        _ => (404, "text/plain", b"there is only /\n".to_vec()),
    };
    let header = |name: &str, value: &str| Header::from_bytes(name, value).expect("plain ASCII");
    let response = Response::from_data(body)
        .with_status_code(status)
        .with_header(header("Content-Type", kind))
        .with_header(header("Cache-Control", "no-store"));
    if let Err(error) = request.respond(response)
        && !matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
    {
        print_error(&format!("an answer was not delivered: {error}\n"));
    }
}

/// Whether a request names this machine.
fn is_meant(request: &Request, address: SocketAddr) -> bool {
    let host = request.headers().iter().find(|header| header.field.equiv("Host"));
    let host = host.map_or("", |header| header.value.as_str());
    let name = host.strip_suffix(&format!(":{}", address.port())).unwrap_or(host);
    ["127.0.0.1", "localhost", ""].contains(&name)
}
