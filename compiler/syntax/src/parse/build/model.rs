//! Layers and models.

use super::{Builder, Parts, Rule, unexpected};
use crate::ast::{Expr, FrozenLayer, Init, LayerItem, LayerName, LayerUse, ModelItem, Tie, WeightSplit};
use crate::source::Span;
use pest::iterators::Pair;
use pipe_ir::graph::DType;

impl Builder<'_> {
    pub(super) fn layer_item(&mut self, pair: Pair<'_, Rule>) -> LayerItem {
        let (span, rule) = (self.span(&pair), pair.as_rule());
        if rule == Rule::binding {
            return LayerItem::Let(self.binding(pair));
        }
        let mut parts = Parts::of(pair);
        let first = parts.need();
        match rule {
            Rule::input => LayerItem::Input { name: self.name(&first) },
            Rule::data => {
                let dtype = if parts.need().as_str() == "i32" { DType::I32 } else { DType::F32 };
                let (name, shape) = (self.name(&first), self.shape(parts.need()));
                let given = parts.optional(Rule::given).map(|given| self.expr(Parts::of(given).need()));
                LayerItem::Data { name, dtype, shape, given, span }
            }
            Rule::weight => {
                let shape = self.shape(parts.need());
                let split = parts.optional(Rule::split).map(|split| {
                    let mut parts = Parts::of(split);
                    let axis = self.expr(parts.need());
                    Box::new(WeightSplit { axis, blocks: parts.next().map(|blocks| self.expr(blocks)) })
                });
                let init = self.init(parts.need());
                let frozen = parts.optional(Rule::frozen).map(|word| self.span(&word));
                let trained = parts.optional(Rule::trained).is_some();
                LayerItem::Weight {
                    name: self.name(&first),
                    shape,
                    split,
                    init,
                    frozen,
                    trained,
                    given: self.given(parts),
                    span,
                }
            }
            Rule::boundary => LayerItem::Part { name: self.name(&first), span },
            Rule::output => {
                let values = std::iter::once(first).chain(parts).map(|value| self.expr(value)).collect();
                LayerItem::Output { values, span }
            }
            Rule::loss => LayerItem::Loss { value: self.expr(first), given: self.given(parts), span },
            other => unexpected(other),
        }
    }

    fn given(&mut self, mut parts: Parts<'_>) -> Option<Expr> {
        parts.next().map(|given| self.expr(Parts::of(given).need()))
    }

    fn tie(&mut self, pair: Pair<'_, Rule>) -> Tie {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let weight = self.name(&parts.need());
        let layer = self.layer_name(parts.need());
        Tie { weight, layer, owner: self.name(&parts.need()), span }
    }

    /// A name, perhaps with an index.
    fn layer_name(&mut self, pair: Pair<'_, Rule>) -> LayerName {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need());
        LayerName { name, index: parts.next().map(|index| self.expr(Parts::of(index).need())), span }
    }

    fn shape(&mut self, pair: Pair<'_, Rule>) -> Vec<Expr> {
        Parts::of(pair).map(|size| self.expr(size)).collect()
    }

    fn init(&mut self, pair: Pair<'_, Rule>) -> Init {
        let ones = pair.as_str().starts_with("ones");
        match Parts::of(pair).next() {
            Some(deviation) => Init::Normal { deviation: self.expr(deviation) },
            None if ones => Init::Ones,
            None => Init::Zeros,
        }
    }

    pub(super) fn model_item(&mut self, pair: Pair<'_, Rule>) -> ModelItem {
        let span = self.span(&pair);
        match pair.as_rule() {
            Rule::layer_use | Rule::named_layer => {
                let mut parts = Parts::of(pair);
                let mut names = Vec::new();
                while let Some(name) = parts.optional(Rule::name) {
                    let name = self.name(&name);
                    let index = parts.optional(Rule::index);
                    let end = index.as_ref().map_or(name.span.end, |index| self.span(index).end);
                    let index = index.map(|index| self.expr(Parts::of(index).need()));
                    names.push(LayerName { span: Span { end, ..name.span }, name, index });
                }
                let call = self.call(parts.need());
                let sources = parts.optional(Rule::sources).into_iter().flat_map(Parts::of);
                let sources = sources.map(|source| self.layer_name(source)).collect();
                let ties = parts.optional(Rule::ties).into_iter().flat_map(Parts::of).map(|tie| self.tie(tie));
                let ties = ties.collect();
                let frozen = parts.optional(Rule::frozen_layer);
                let frozen = frozen.map(|frozen| FrozenLayer { given: self.given(Parts::of(frozen)) });
                ModelItem::Layer(LayerUse { names, call, sources, ties, frozen })
            }
            Rule::layers => {
                let mut parts = Parts::of(pair);
                let count = self.expr(parts.need());
                ModelItem::Repeat { count, body: parts.map(|item| self.model_item(item)).collect(), span }
            }
            Rule::counted_layers => {
                let mut parts = Parts::of(pair);
                let variable = self.name(&parts.need());
                let [start, end] = [(); 2].map(|()| self.expr(parts.need()));
                ModelItem::For { variable, start, end, body: parts.map(|item| self.model_item(item)).collect() }
            }
            Rule::binding => ModelItem::Let(self.binding(pair)),
            other => unexpected(other),
        }
    }
}
