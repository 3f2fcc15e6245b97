// Questions to the person at the screen, before something changes.

import { fill, h, problem } from "./dom.js";

function inputOf(field) {
  if (field.lines) return h("textarea", { rows: field.lines, name: field.name, value: field.value ?? "" });
  if (field.choice) return h("select", { name: field.name }, field.choice.map((each) => h("option", {}, each)));
  return h("input", { name: field.name, value: field.value ?? "", placeholder: field.placeholder, autocomplete: "off" });
}

// `work` carries it out. If it fails, the dialog stays, with what was typed and the reason.
function open(title, text, fields, action, work, danger) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => [field, inputOf(field)]);
    const wrong = h("div");
    const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    async function submit(event) {
      event.preventDefault();
      button.disabled = true;
      try {
        await work(Object.fromEntries(inputs.map(([field, input]) => [field.name, input.value])));
        finish(true);
      } catch (error) {
        fill(wrong, problem(error));
        button.disabled = false;
      }
    }
    const dialog = h("dialog", { "aria-label": title },
      h("form", { method: "dialog", onsubmit: submit },
        h("h2", {}, title), text ? h("p", {}, text) : null,
        inputs.map(([field, input]) => h("label", {}, field.title, input)), wrong,
        h("div", { class: "bar" }, h("span", { class: "grow" }),
          h("button", { type: "button", onclick: () => finish(false) }, "Cancel"), button)));
    const finish = (isDone) => { dialog.remove(); resolve(isDone); };
    dialog.addEventListener("cancel", () => finish(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Both return whether it was done.
export const ask = (title, text, fields, action, work) => open(title, text, fields, action, work, false);
export const confirm = (title, text, action, work) => open(title, text, [], action, work, true);
