// Questions to the person at the screen, before something changes.

import { h } from "./dom.js";

function open(title, text, fields, action, danger) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => [field, field.lines
      ? h("textarea", { rows: field.lines, name: field.name, value: field.value ?? "" })
      : h("input", { name: field.name, value: field.value ?? "", placeholder: field.placeholder, autocomplete: "off" })]);
    const dialog = h("dialog", { "aria-label": title },
      h("form", { method: "dialog", onsubmit: () => finish(Object.fromEntries(inputs.map(([field, input]) => [field.name, input.value]))) },
        h("h2", {}, title), h("p", {}, text),
        inputs.map(([field, input]) => h("label", {}, field.title, input)),
        h("div", { class: "bar" }, h("span", { class: "grow" }),
          h("button", { type: "button", onclick: () => finish(null) }, "Cancel"),
          h("button", { type: "submit", class: danger ? "danger" : "primary" }, action))));
    const finish = (answer) => { dialog.remove(); resolve(answer); };
    dialog.addEventListener("cancel", () => finish(null));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const ask = (title, text, fields, action = "Do it") => open(title, text, fields, action, false);
export const confirm = (title, text, action = title) => open(title, text, [], action, true);
