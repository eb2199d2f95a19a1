//! One reading of a call's arguments for all rules of a list. Without it, each condition would scan
//! all arguments again: a hundred rules and 5 MiB took seconds.
//!
//! The conditions are sorted by their paths, so that a reading enters each value once for all of
//! them.
//!
//! Must not: answer differently from a condition that is tried alone, or keep parts of the
//! arguments.

mod value;

use std::ops::Range;
use std::sync::OnceLock;

use globset::GlobMatcher;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, PatternID, PatternSet};

use super::{Rule, Test, fold};
use crate::model::json::{each_element, each_member};
use crate::model::maps::HashMap;
use value::Value;

/// Up to so many globs on one value are tried one by one.
const FEW_GLOBS: usize = 3;
/// So many bytes at one path are tried one by one: an automaton takes longer to build. Tests have
/// small arguments.
const FEW_BYTES: usize = if cfg!(test) { 8 } else { 4 << 10 };
/// The most memory of one automaton's states.
const MAX_STATES: usize = 1 << 20;
/// Where a new state of an automaton serves fewer bytes than that, globs are faster one by one.
const BYTES_PER_STATE: usize = 64;

/// The conditions of a list of rules, by their paths.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct ConditionTree {
    /// The first is that of the arguments themselves.
    places: Vec<Place>,
    /// The place of each condition.
    conditions: Vec<usize>,
    /// The conditions of each rule.
    rules: Vec<Range<usize>>,
}

/// Where a path leads, or a part of it.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Of the first place: itself.
    parent: usize,
    /// By their folded keys.
    children: HashMap<String, usize>,
    /// The children whose keys are numbers, in the order of these.
    elements: Vec<(usize, usize)>,
    /// The other children, which no list has.
    names: Vec<usize>,
    /// The comparisons with numbers, by their conditions.
    limits: Vec<(usize, Limit)>,
    /// By their conditions.
    globs: Vec<(usize, GlobTest)>,
    /// `None` where they are too large for one.
    automaton: OnceLock<Option<DFA>>,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    Gt(f64),
    Lt(f64),
}

/// A glob, and what else its pattern can mean.
#[derive(Debug, Clone)]
struct GlobTest {
    matcher: GlobMatcher,
    meant: Option<bool>,
    number: Option<f64>,
    is_absolute: bool,
}

impl ConditionTree {
    pub(in crate::model) fn new(rules: &[Rule]) -> Self {
        let mut tree = Self { places: vec![Place::default()], ..Self::default() };
        for rule in rules {
            let first = tree.conditions.len();
            for condition in &rule.when {
                let place = condition.keys.iter().fold(0, |place, key| tree.child(place, key));
                let number = tree.conditions.len();
                tree.conditions.push(place);
                tree.places[place].add(number, &condition.test);
            }
            tree.rules.push(first..tree.conditions.len());
        }
        for place in &mut tree.places {
            place.elements.sort_unstable();
        }
        tree
    }

    /// The place below `parent` that `key` leads to.
    fn child(&mut self, parent: usize, key: &str) -> usize {
        let next = self.places.len();
        let child = *self.places[parent].children.entry(fold(key).into_owned()).or_insert(next);
        if child == next {
            match key.parse() {
                Ok(index) => self.places[parent].elements.push((index, child)),
                Err(_) => self.places[parent].names.push(child),
            }
            self.places.push(Place { parent, ..Place::default() });
        }
        child
    }

    /// The first of the rules `among`, in their order, whose conditions all hold for `arguments`.
    pub(in crate::model) fn first(&self, among: &[usize], arguments: &str) -> Option<usize> {
        let unconditional = among.iter().position(|rule| self.rules[*rule].is_empty());
        let (conditional, rest) = among.split_at(unconditional.unwrap_or(among.len()));
        if conditional.is_empty() {
            return rest.first().copied();
        }
        let mut reading = Reading::new(self, conditional);
        reading.enter(0, arguments);
        let fitting = conditional.iter().find(|rule| {
            let open_conditions = &reading.open[self.rules[**rule].clone()];
            !open_conditions.contains(&true)
        });
        fitting.or(rest.first()).copied()
    }
}

impl Place {
    fn add(&mut self, condition: usize, test: &Test) {
        match test {
            Test::Gt(limit) => self.limits.push((condition, Limit::Gt(*limit))),
            Test::Lt(limit) => self.limits.push((condition, Limit::Lt(*limit))),
            Test::Glob(matcher) => {
                let pattern = matcher.glob().glob();
                let test = GlobTest {
                    meant: pattern.parse().ok(),
                    number: pattern.parse().ok(),
                    is_absolute: pattern.starts_with('/'),
                    matcher: matcher.clone(),
                };
                self.globs.push((condition, test));
            }
        }
    }

    /// One automaton of all globs of this place.
    fn automaton(&self) -> Option<&DFA> {
        self.automaton.get_or_init(|| automaton(&self.globs)).as_ref()
    }
}

/// One automaton that says which of `globs` match. It reads their regular expressions as `globset`
/// does.
fn automaton(globs: &[(usize, GlobTest)]) -> Option<DFA> {
    let patterns: Vec<&str> = globs.iter().map(|(_, test)| test.matcher.glob().regex()).collect();
    let config = DFA::config()
        .match_kind(MatchKind::All)
        .cache_capacity(MAX_STATES)
        .minimum_cache_clear_count(Some(1))
        .minimum_bytes_per_state(Some(BYTES_PER_STATE));
    DFA::builder()
        .configure(config)
        .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(10 * MAX_STATES)))
        .syntax(syntax::Config::new().utf8(false).dot_matches_new_line(true))
        .build_many(&patterns)
        .ok()
}

/// How far the conditions of some rules are decided.
struct Reading<'t> {
    tree: &'t ConditionTree,
    /// The conditions that no value has fit so far.
    open: Vec<bool>,
    places: Vec<PlaceReading>,
}

#[derive(Default, Clone)]
struct PlaceReading {
    /// How many conditions are open here and below.
    open: usize,
    /// How many bytes of values were compared here.
    bytes: usize,
    search: Search,
}

/// The search for all globs of one place at once.
#[derive(Default, Clone)]
enum Search {
    #[default]
    NotBegun,
    Begun(Box<(Cache, PatternSet)>),
    /// The automaton is too slow for these values.
    GivenUp,
}

impl<'t> Reading<'t> {
    fn new(tree: &'t ConditionTree, rules: &[usize]) -> Self {
        let mut open = vec![false; tree.conditions.len()];
        let mut places = vec![PlaceReading::default(); tree.places.len()];
        for condition in rules.iter().flat_map(|rule| tree.rules[*rule].clone()) {
            open[condition] = true;
            tree.each_ancestor(condition, |place| places[place].open += 1);
        }
        Self { tree, open, places }
    }

    /// Decides what is open at `place` and below, as far as the value `json` there does.
    fn enter(&mut self, place: usize, json: &str) {
        if self.places[place].open == 0 {
            return;
        }
        let tree = self.tree;
        let Place { children, elements, names, limits, globs, .. } = &tree.places[place];
        if !(limits.is_empty() && globs.is_empty()) {
            self.compare(place, json);
        }
        if children.is_empty() {
            return;
        }
        if !elements.is_empty() && json.trim_start().starts_with('[') {
            let mut sought = elements.iter().peekable();
            let mut position = 0;
            let array = each_element(json, |item| {
                while let Some((_, child)) = sought.next_if(|(index, _)| *index == position) {
                    self.enter(*child, item.get());
                }
                position += 1;
            });
            if array.is_ok() {
                // A list has no member of such a name, and a server may make an object of it.
                names.iter().for_each(|child| self.fit_all(*child));
                return;
            }
        }
        let object = each_member(json, |name, value| {
            if let Some(child) = children.get(&*fold(&name)) {
                self.enter(*child, value.get());
            }
        });
        if object.is_err() {
            children.values().for_each(|child| self.fit_all(*child));
        }
    }

    /// Compares the value `json` with what the open conditions of `place` have.
    fn compare(&mut self, place: usize, json: &str) {
        let Place { limits, globs, .. } = &self.tree.places[place];
        let value = Value::new(json);
        for (condition, limit) in limits {
            if self.open[*condition] && value.is_beyond(*limit) {
                self.fit(*condition);
            }
        }
        if !globs.iter().any(|(condition, _)| self.open[*condition]) {
            return;
        }
        self.places[place].bytes += json.len();
        let searched = self.search(place, &value);
        for (number, (condition, test)) in globs.iter().enumerate() {
            if !self.open[*condition] {
                continue;
            }
            let fits = match &self.places[place].search {
                Search::Begun(search) if searched => {
                    let in_set = PatternID::new(number).is_ok_and(|id| search.1.contains(id));
                    value.fits(test, || in_set)
                }
                _ => value.fits(test, || value.any_form(|form| test.matcher.is_match(form))),
            };
            if fits {
                self.fit(*condition);
            }
        }
    }

    /// Searches the forms of `value` for all globs of `place` at once, where that is worth it.
    /// Whether it did.
    fn search(&mut self, place: usize, value: &Value<'_>) -> bool {
        let state = &mut self.places[place];
        let globs = &self.tree.places[place];
        if globs.globs.len() <= FEW_GLOBS || state.bytes <= FEW_BYTES {
            return false;
        }
        let Some(automaton) = globs.automaton() else { return false };
        if matches!(state.search, Search::NotBegun) {
            let set = PatternSet::new(automaton.pattern_len());
            state.search = Search::Begun(Box::new((automaton.create_cache(), set)));
        }
        let Search::Begun(search) = &mut state.search else { return false };
        let (cache, set) = &mut **search;
        set.clear();
        let gives_up = value.any_form(|form| {
            // The regular expression of a glob is about the whole text.
            let input = Input::new(form).anchored(Anchored::Yes);
            automaton.try_which_overlapping_matches(cache, &input, set).is_err()
        });
        if gives_up {
            state.search = Search::GivenUp;
        }
        !gives_up
    }

    fn fit(&mut self, condition: usize) {
        if std::mem::take(&mut self.open[condition]) {
            let places = &mut self.places;
            self.tree.each_ancestor(condition, |place| places[place].open -= 1);
        }
    }

    /// Decides all conditions at `place` and below: what is there has no such members.
    fn fit_all(&mut self, place: usize) {
        if self.places[place].open == 0 {
            return;
        }
        let Place { children, limits, globs, .. } = &self.tree.places[place];
        limits.iter().for_each(|(condition, _)| self.fit(*condition));
        globs.iter().for_each(|(condition, _)| self.fit(*condition));
        children.values().for_each(|child| self.fit_all(*child));
    }
}

impl ConditionTree {
    /// Calls `visit` with the place of `condition` and all above it.
    fn each_ancestor(&self, condition: usize, mut visit: impl FnMut(usize)) {
        let mut place = self.conditions[condition];
        visit(place);
        while place != 0 {
            place = self.places[place].parent;
            visit(place);
        }
    }
}
