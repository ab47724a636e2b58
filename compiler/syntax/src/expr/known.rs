//! What an expression outside of schedules may name: numbers, and what files define.

use super::evaluate::Values;
use super::scope::{Form, Scope};
use crate::ast::Name;

/// Numbers by name, and the definitions of files.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// Numbers that an expression may name.
    numbers: Values,
    /// Those of them that definitions may name.
    of_files: Values,
    definitions: Vec<(&'a Name, Form<'a>)>,
}

impl<'a> Known<'a> {
    /// These definitions, and numbers for expressions and definitions.
    pub fn new(definitions: impl Iterator<Item = (&'a Name, Form<'a>)>, numbers: Values) -> Self {
        Self { of_files: numbers.clone(), numbers, definitions: definitions.collect() }
    }

    /// These and others, for expressions and definitions.
    pub fn and(&self, others: impl IntoIterator<Item = (&'static str, i64)>) -> Self {
        let mut known = self.clone();
        for (name, number) in others {
            known.numbers.insert(name.to_owned(), number);
            known.of_files.insert(name.to_owned(), number);
        }
        known
    }

    /// Adds a number that definitions do not know.
    pub fn insert(&mut self, name: &str, number: i64) {
        self.numbers.insert(name.to_owned(), number);
    }

    /// The numbers.
    pub const fn numbers(&self) -> &Values {
        &self.numbers
    }

    /// What names mean.
    pub fn scope(&self) -> Scope<'_> {
        let mut scope = Scope::new(self.numbers.clone());
        scope.share(self.definitions.iter().copied(), self.of_files.clone());
        scope
    }
}

impl From<Values> for Known<'_> {
    fn from(numbers: Values) -> Self {
        Self { numbers, ..Self::default() }
    }
}
