// dynalite on a free loopback port, which it prints. It throws when a client goes away in the
// middle of a request; clients that are killed are what these tests are about.
'use strict'

const dynalite = require('dynalite')

process.on('uncaughtException', (error) => {
  if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') {
    console.error(error)
    process.exit(1)
  }
})

const server = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
server.listen(0, '127.0.0.1', () => console.log(`listening on ${server.address().port}`))
