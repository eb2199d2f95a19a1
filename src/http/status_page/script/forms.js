// Forms made of a JSON Schema's properties.

/** The choices of a field, with their titles; `null` if it has none. */
function choicesOf(field) {
  const all = field.enum ?? field.oneOf ?? field.anyOf;
  if (!Array.isArray(all)) return null;
  return all.map((one, at) => one?.const === undefined
    ? [String(one), field.enumNames?.[at] ?? String(one)]
    : [String(one.const), one.title ?? String(one.const)]);
}

/** The input of a field, and how its value is read: `undefined` leaves the field out. */
function input(field, isRequired) {
  const choices = choicesOf(field.type === "array" ? field.items : field);
  if (choices) {
    const isList = field.type === "array";
    const made = make("select", "", ...(isList || isRequired ? [] : [make("option", "", "")]), ...choices.map(([value, title]) => {
      const option = make("option", "", plain(title));
      option.value = value;
      option.defaultSelected = isList ? (Array.isArray(field.default) && field.default.includes(value)) : field.default === value;
      return option;
    }));
    made.multiple = isList;
    if (!isList && isRequired && field.default === undefined) made.selectedIndex = -1;
    const chosen = () => [...made.selectedOptions].map((option) => option.value);
    return [made, () => isList ? (chosen().length || isRequired ? chosen() : undefined) : (chosen()[0] || undefined)];
  }
  const made = make("input", "");
  const type = Array.isArray(field.type) ? field.type.find((one) => one !== "null") : field.type;
  const isJson = type === "array" ? !["string", undefined].includes(field.items?.type) : !["string", "number", "integer", "boolean"].includes(type);
  if (isJson) {
    made.placeholder = "JSON";
    made.value = field.default === undefined ? "" : JSON.stringify(field.default);
    // What is no JSON goes as the text that it is, and the bridge says so.
    const parsed = () => { try { return JSON.parse(made.value); } catch { return made.value; } };
    return [made, () => made.value.trim() === "" ? undefined : parsed()];
  }
  if (type === "boolean") {
    made.type = "checkbox";
    made.checked = field.default === true;
    return [made, () => made.checked];
  }
  made.value = field.default === undefined ? "" : field.default;
  if (type === "array") {
    made.placeholder = "one, another";
    return [made, () => made.value ? made.value.split(",").map((one) => one.trim()) : undefined];
  }
  if (type !== "string") {
    made.inputMode = "decimal";
    // What is no number goes as it is, and the bridge says so.
    return [made, () => made.value.trim() === "" ? undefined : Number.isNaN(Number(made.value)) ? made.value : Number(made.value)];
  }
  made.type = { date: "date", "date-time": "text", email: "email", uri: "url" }[field.format] ?? "text";
  return [made, () => made.value === "" && !isRequired ? undefined : made.value];
}

/** Shows at a field what is wrong with its value; without a message, that nothing is. */
function markRow({ element, flaw, row }, message) {
  row.classList.toggle("wrong", message !== "");
  flaw.textContent = message;
  if (message) {
    element.setAttribute("aria-invalid", "true");
    element.setAttribute("aria-describedby", flaw.id);
  } else {
    element.removeAttribute("aria-invalid");
    element.removeAttribute("aria-describedby");
  }
}

/** Marks the field whose JSON Pointer a refusal names, and puts the focus there; whether it names one. */
function markField(all, message) {
  all.forEach((field) => markRow(field, ""));
  const named = all.filter(({ name }) => message.includes(`/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`));
  const field = named.sort((a, b) => b.name.length - a.name.length)[0]
    ?? all.find(({ element }) => element.required && !element.validity.valid);
  if (!field) return false;
  // What follows the pointer; the field itself says where.
  markRow(field, message.split(`/${field.name}: `).at(-1));
  field.element.focus();
  return true;
}

/** The inputs of a schema's properties, and how what they hold is read. */
function fields(id, of) {
  const required = Array.isArray(of?.required) ? of.required : [];
  const all = Object.entries(of?.properties ?? {}).map(([name, field], at) => {
    const [element, value] = input(field ?? {}, required.includes(name));
    element.id = `${id}-${at}`;
    element.required = required.includes(name) && element.type !== "checkbox";
    const label = make("label", "", plain(field?.title ?? name), required.includes(name) ? make("span", "bad-word", " required") : null);
    label.htmlFor = element.id;
    const text = field?.description === undefined ? null : make("small", "soft", plain(field.description));
    const flaw = make("small", "bad-word", "");
    flaw.id = `${element.id}-flaw`;
    const row = make("div", "field", label, element, text, flaw);
    element.addEventListener("input", () => markRow({ element, flaw, row }, ""));
    return { name, value, element, flaw, row };
  });
  const read = () => Object.fromEntries(all.map(({ name, value }) => [name, value()]).filter(([, value]) => value !== undefined));
  return { element: make("div", "fields", ...all.map(({ row }) => row)), read, mark: (message) => markField(all, message) };
}
