//! Versions of PyTorch, by what their form of a schedule has.

use super::action::ActionKind;
use super::table::Table;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use std::fmt;
use std::str::FromStr;

/// A version 2.x of PyTorch: x.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(u32);

impl Version {
    /// The first one whose form of a schedule is known.
    const FIRST: Self = Self(7);
    /// The last one in which nothing but tasks and transfers is needed.
    pub const PLAIN: Self = Self(9);
    /// The last one in which gradients are reduced at once.
    pub const REDUCES: Self = Self(14);
    /// The newest one that is known.
    pub const NEWEST: Self = Self(15);

    /// Whether a forward and a backward may share a rank (2.9).
    pub const fn has_pairs(self) -> bool {
        self.0 >= 9
    }

    /// Whether gradients must be reduced by an action of their own (2.10).
    pub const fn reduces(self) -> bool {
        self.0 >= 10
    }

    /// Whether sends and reductions must be waited for (2.15).
    pub const fn waits(self) -> bool {
        self.0 >= 15
    }

    /// Whether it can move receives to the tasks that need them (`defer_pp_recv`, 2.13).
    pub const fn defers(self) -> bool {
        self.0 >= 13
    }

    /// Whether it knows the word for an action.
    const fn knows(self, kind: ActionKind) -> bool {
        match kind {
            ActionKind::ReduceGradient => self.reduces(),
            ActionKind::WaitReduceGradient | ActionKind::WaitSendForward | ActionKind::WaitSendBackward => self.waits(),
            _ => true,
        }
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2.{}", self.0)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = format!("expected a version of PyTorch, as in `{}`", Self::NEWEST);
        let minor = text.strip_prefix("2.").and_then(|rest| rest.split('.').next()).ok_or(expected.clone())?;
        let version = Self(minor.parse().map_err(|_| expected)?);
        if version < Self::FIRST {
            return Err(format!("PyTorch reads such schedules from {} on, not in {version}", Self::FIRST));
        }
        Ok(version)
    }
}

/// Rule: a version knows every word of a schedule that it is to load.
pub(super) fn check(table: &Table, version: Version) -> Diagnostics {
    let mut found = Diagnostics::new();
    for (_, _, action, cell) in table.actions() {
        let since = match action.kind {
            _ if cell.partner.is_some() && !version.has_pairs() => Version::PLAIN,
            ActionKind::ReduceGradient if !version.reduces() => Version(10),
            kind if !version.knows(kind) => Version::NEWEST,
            _ => continue,
        };
        let message = format!("PyTorch {version} cannot read `{cell}`: {since} was the first that could");
        let error = Diagnostic::error(Code::TorchVersion, cell.span, "not known there", message);
        found.push(error.help("`--torch` says for which version a schedule is; `pipec build` writes those of all"));
        // One of them says it all.
        break;
    }
    found
}
