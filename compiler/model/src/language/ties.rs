//! Tied weights: a weight of a layer that is the weight of a layer before.

use super::Assembly;
use super::environment::Environment;
use crate::WeightId;
use pipe_ir::graph::TensorType;
use pipe_syntax::ast::{self, LayerItem};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// The weight that another one is.
#[derive(Clone, Debug)]
pub(super) struct Tied {
    /// Which one; never a tied one itself.
    pub owner: WeightId,
    /// Its element type and shape.
    pub ty: TensorType,
    /// Where that was said.
    pub span: Span,
}

impl Assembly<'_, '_> {
    /// The owners of a layer's tied weights, by the layer's own names, where they are known.
    pub(super) fn ties(
        &mut self,
        declaration: &ast::Layer,
        ties: &[ast::Tie],
        names: &Environment,
    ) -> BTreeMap<String, Tied> {
        let weights = declaration.items.iter().filter_map(|item| match item {
            LayerItem::Weight { name, .. } => Some(name.text.as_str()),
            _ => None,
        });
        let weights: Vec<&str> = weights.collect();
        let mut known: BTreeMap<String, Tied> = BTreeMap::new();
        for (index, tie) in ties.iter().enumerate() {
            let own = &tie.weight;
            if !weights.contains(&own.text.as_str()) {
                let unknown = unknown_weight(&declaration.name.text, own, weights.iter().copied());
                self.found.push(unknown);
            }
            if let Some(first) = ties[..index].iter().find(|first| first.weight.text == own.text) {
                let message = format!("`{}` is tied twice", own.text);
                let diagnostic = Diagnostic::error(Code::RepeatedItem, tie.span, "the second time", message);
                self.found.push(diagnostic.label(first.span, "the first time"));
            }
            if let Some(tied) = self.owner(tie, names) {
                known.insert(own.text.clone(), tied);
            }
        }
        known
    }

    fn owner(&mut self, tie: &ast::Tie, names: &Environment) -> Option<Tied> {
        let layer = self.source(&tie.layer, names)?;
        let weights = &self.made[layer].weights;
        let Some(weight) = weights.iter().position(|(weight, _)| weight.name == tie.owner.text) else {
            // A layer with mistakes has no weights; those are reported.
            if !weights.is_empty() {
                let all = weights.iter().map(|(weight, _)| weight.name.as_str());
                let unknown = unknown_weight(&tie.layer.name.text, &tie.owner, all);
                self.found.push(unknown);
            }
            return None;
        };
        let (found, place) = &weights[weight];
        Some(Tied { owner: found.owner.unwrap_or(*place), ty: found.ty.clone(), span: tie.span })
    }
}

fn unknown_weight<'n>(layer: &str, name: &ast::Name, weights: impl Iterator<Item = &'n str>) -> Diagnostic {
    let message = format!("`{layer}` has no weight `{}`", name.text);
    Diagnostic::error(Code::UnknownName, name.span, "used here", message).suggest(name.span, &name.text, weights)
}
