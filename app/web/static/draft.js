// The draft of a document in this tab: it outlives a reload, other pages and a new sign-in. Secrets are not kept.
export const MASK = "***"; // the server takes it for no secret
// As app/domain/spec/secrets.py has them.
const SECRET_VARIABLE = /KEY|PASS|PWD|AUTH(?!OR(?!IZ))|TOKEN(?!IZER)|SECRET|CREDENTIAL|CREDS|PRIVATE|(?:^|_)PAT(?:_|$)|DATABASE_URL|DSN/i;
const SECRET_FIELD = /^(?:token|\w*hub_token|password|content|headers|secret\w*)$/;
const SECRET_VALUE = /:\/\/\S*@|[?&][^=&\s]*(?:sig|hmac|jwt|key|pass|pwd|auth|token|secret|cred)[^=&\s]*=/i;

function masked(value, name = "", section = "") {
  if (Array.isArray(value)) return value.map((each) => masked(each, name, section));
  if (typeof value === "object" && value !== null) {
    const inner = section === "credentials" ? section : name;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, masked(each, key, inner)]));
  }
  const isSecret = section === "credentials" || name === "credentials" || (SECRET_FIELD.test(name) && section !== "hyperparameters")
    || (section === "environment" && SECRET_VARIABLE.test(name)) || (typeof value === "string" && SECRET_VALUE.test(value));
  return isSecret && value ? MASK : value;
}

export function keep(key, document, values) {
  try {
    sessionStorage.setItem(key, JSON.stringify({ ...values, text: JSON.stringify(masked(document), null, 2) }));
  } catch {
    // Full, or not allowed: the page works without it.
  }
}

export function kept(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}

export function forget(key) {
  try {
    sessionStorage.removeItem(key);
  } catch {
    // Nothing is kept then.
  }
}
