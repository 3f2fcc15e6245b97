// Login with a user and password of the cluster, and the way out.

import { about, post } from "./api.js";
import { fill, h } from "./dom.js";

export function loginView(main) {
  const user = h("input", { name: "user", autocomplete: "username", required: true, autofocus: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const problem = h("div", { role: "alert" });
  const button = h("button", { type: "submit", class: "primary" }, "Log in");
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    fill(problem);
    try {
      await post("/api/login", { user: user.value, password: password.value });
      location.reload();
    } catch (error) {
      password.value = "";
      fill(problem, h("div", { class: "error" }, error.message));
      button.disabled = false;
      password.focus();
    }
  }
  main.append(h("form", { class: "card login", onsubmit: submit }, h("h1", {}, "Log in"),
    h("p", { class: "quiet" }, "With a user of the Kafka cluster. You see and change what that user may see and change."),
    h("label", {}, "User", user), h("label", {}, "Password", password), problem, button));
  user.focus();
}

export function logoutButton() {
  return h("span", { class: "user" }, h("span", { class: "quiet" }, about.user), " ",
    h("button", { type: "button", onclick: () => post("/api/logout", {}).finally(() => location.reload()) }, "Log out"));
}
