//! The settings of a spec besides its tools and its input (agent-runs-protocol §4.4 to §4.9).
//!
//! Must not: act on them. `loopDetection`, `supervisor` and `budgets` are checked, and have no
//! effect: the scripted model does not loop by itself.

use std::collections::HashMap;

use crate::sandbox::read::{Invalid, Object, Value};

/// The enforcement of `outputSchema`; the scripted model ignores the schema itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    BestEffort,
    Strict,
}

/// `plan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    Off,
    On,
    /// The run ends with the plan.
    Only {
        brief: Option<String>,
        steps: Vec<String>,
    },
}

/// Checks the settings that are not stored.
pub(super) fn check(body: &Object<'_>) -> Result<(), Invalid> {
    if let Some(budgets) = body.object("budgets")?
        && let Some(turns) = budgets.get("maxToolTurns")
    {
        turns.integer(0..=i64::from(u32::MAX))?;
    }
    Ok(())
}

/// Reads `reasoningLevel`, as `model.reasoningEffort` reports it.
pub(super) fn read_effort(body: &Object<'_>) -> Result<Option<&'static str>, Invalid> {
    let Some(value) = body.get("reasoningLevel") else {
        return Ok(None);
    };
    if value.raw.get().starts_with('"') {
        let text = value.string()?;
        let known = ["off", "low", "medium", "high"].into_iter().find(|level| *level == text);
        let wanted = "off, low, medium, high or an integer from 0 to 100";
        return known.map(Some).ok_or_else(|| value.wrong_type(wanted));
    }
    // The steps of wire-protocol §4.8.1.
    Ok(Some(match value.integer(0..=100)? {
        0 => "off",
        1..=35 => "low",
        36..=65 => "medium",
        _ => "high",
    }))
}

pub(super) fn read_schema(body: &Object<'_>) -> Result<Option<Schema>, Invalid> {
    const MAX_SIZE: usize = 32_000;
    let Some(value) = body.get("outputSchema") else {
        return Ok(None);
    };
    let object = value.object()?;
    value.is_short(MAX_SIZE)?;
    if let Some(name) = object.get("name") {
        let text = name.string()?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if text.is_empty() || text.len() > 64 || !text.bytes().all(legal) {
            return Err(name.wrong_type("a name that matches ^[a-zA-Z0-9_-]{1,64}$"));
        }
    }
    object.need("schema")?.object()?;
    match object.string("enforcement")?.as_deref() {
        None | Some("best_effort") => Ok(Some(Schema::BestEffort)),
        Some("strict") => Ok(Some(Schema::Strict)),
        Some(_) => Err(value.invalid("enforcement must be best_effort or strict")),
    }
}

pub(super) fn read_budgets(body: &Object<'_>) -> Result<Option<HashMap<String, u64>>, Invalid> {
    const MAX_ENTRIES: usize = 32;
    check_loop_detection(body)?;
    check_supervisor(body)?;
    let Some(value) = body.get("toolBudgets") else {
        return Ok(None);
    };
    let object = value.object()?;
    value.fits(object.len(), MAX_ENTRIES, "entries")?;
    let mut budgets = HashMap::new();
    for (tool, budget) in object.members() {
        if tool.is_empty() || tool.chars().count() > 120 {
            return Err(budget.invalid("the tool's name must have 1 to 120 characters"));
        }
        let max_calls = budget.object()?.need("maxCalls")?.integer(0..=1000)?;
        budgets.insert(tool.to_owned(), max_calls.unsigned_abs());
    }
    Ok(Some(budgets))
}

pub(super) fn read_plan(body: &Object<'_>) -> Result<Option<Plan>, Invalid> {
    let Some(value) = body.get("plan") else {
        return Ok(None);
    };
    match value.raw.get() {
        "false" | r#""off""# => return Ok(Some(Plan::Off)),
        "true" | r#""auto""# | r#""required""# => return Ok(Some(Plan::On)),
        _ if value.is_object() => (),
        _ => return Err(value.wrong_type("a boolean, off, auto, required or an object")),
    }
    let plan = value.object()?;
    let mode = plan.string("mode")?;
    if let Some(mode) = &mode
        && !matches!(mode.as_str(), "off" | "auto" | "required")
    {
        return Err(value.invalid("mode must be off, auto or required"));
    }
    let brief = plan.string("brief")?;
    let steps = match plan.get("steps") {
        Some(steps) => {
            steps.array()?.iter().map(Value::string).collect::<Result<Vec<_>, Invalid>>()?
        }
        None => Vec::new(),
    };
    Ok(Some(if plan.boolean("planOnly")? == Some(true) {
        Plan::Only { brief, steps }
    } else if mode.as_deref() == Some("off") {
        Plan::Off
    } else {
        Plan::On
    }))
}

fn check_loop_detection(body: &Object<'_>) -> Result<(), Invalid> {
    let Some(value) = body.get("loopDetection") else {
        return Ok(());
    };
    if value.raw.get() == "false" {
        return Ok(());
    }
    let object = value.object()?;
    let threshold = |key: &str, default: i64, least: i64| {
        object.get(key).map_or(Ok(default), |value| value.integer(least..=100))
    };
    let nudge = threshold("consecutiveThreshold", 3, 2)?;
    let cutoff = threshold("hardCutoffThreshold", 6, 3)?;
    if cutoff > nudge {
        return Ok(());
    }
    Err(value.invalid("hardCutoffThreshold must be greater than consecutiveThreshold"))
}

fn check_supervisor(body: &Object<'_>) -> Result<(), Invalid> {
    let Some(value) = body.get("supervisor") else {
        return Ok(());
    };
    if matches!(value.raw.get(), "true" | "false") {
        return Ok(());
    }
    let object = value.object()?;
    if let Some(interval) = object.get("interval") {
        interval.integer(1..=100)?;
    }
    object.string("modelId")?;
    match object.get("reasoningTrigger") {
        Some(trigger) if trigger.raw.get() != "false" => trigger.object().map(drop),
        _ => Ok(()),
    }
}
