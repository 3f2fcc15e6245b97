// TLS and the login of kafkajs, from the file that TIDELOG_COMPAT_SECURITY names.
'use strict'

const fs = require('node:fs')

module.exports = function security() {
  const file = process.env.TIDELOG_COMPAT_SECURITY
  if (!file) return {}
  const { authority, certificate, user, password } = JSON.parse(fs.readFileSync(file, 'utf8'))
  const ssl = { ca: [fs.readFileSync(authority, 'utf8')] }
  if (certificate) ssl.cert = ssl.key = fs.readFileSync(certificate, 'utf8')
  if (!user) return { ssl }
  return { ssl, sasl: { mechanism: 'scram-sha-512', username: user, password } }
}
